package main

// exceptions lists the tests that do not pass with our shim, whatever the stage1, with the reason why
// that is correct. Most of them pass with runc.
func exceptions() []exception {
	const (
		commandLine = "about runc's command line, to which BinaryName and Root lead; the suite itself skips it for any other runtime"
		criu        = "not compared: there is no criu in either column, and the stage1 `native` does not checkpoint"
	)
	return []exception{
		{test: "TestIssue10589", reason: commandLine},
		{test: "TestIssue9103", reason: commandLine},
		{test: "TestKillContainerDeletedByRunc", reason: commandLine},
		{test: "TestContainerRuntimeOptionsv2", reason: "expects Create to fail for want of the runc that BinaryName names; here there is none to want, and options about it are accepted"},
		{test: "TestDaemonRuntimeRoot", reason: "looks for runc's state below Root, and here there is no runc to have any"},
		{test: "TestCheckpointLeaveRunning", reason: criu},
		{test: "TestCheckpointOnPauseStatus", reason: criu},
		{test: "TestCheckpointRestore", reason: criu},
		{test: "TestCheckpointRestoreNewContainer", reason: criu},
		{test: "TestCheckpointRestorePTY", reason: criu},
		{test: "TestCheckpointRestoreWithImagePath", reason: criu},
		{test: "TestExportAllCases/export_image_setting_ocispec.AnnotationRefName", reason: "names an image by a digest that only its real registry has"},
	}
}

// exceptionsOfMachines lists those that do not pass with the stage1 kvm either.
func exceptionsOfMachines() []exception {
	const hostPID = "asks for the host's PID namespace, which is not the machine's: refused by name"
	return []exception{
		{test: "TestContainerKillAll", reason: hostPID},
		{test: "TestContainerKillInitPidHost", reason: hostPID},
		{test: "TestContainerPids", reason: "looks for the task's pid, which is a proxy's, among the pids of its processes, which are the machine's"},
		{test: "TestTaskUpdate", reason: "reads the limit in the cgroup of the task's pid; the limit is in the machine"},
		{test: "TestRestartMonitor", reason: "expects a container to be started again within six seconds, in which an emulated machine may not boot", mayPass: true},
	}
}
