package main

// exceptions lists the tests that do not pass with rkt, with the reason why that is correct.
// Most of them pass with runc.
func exceptions() []exception {
	const (
		commandLine = "about runc's command line, to which BinaryName and Root lead; the suite itself skips it for any other runtime"
		criu        = "not compared: there is no criu in either column, and the stage1 `native` does not checkpoint"
	)
	return []exception{
		{"TestIssue10589", commandLine},
		{"TestIssue9103", commandLine},
		{"TestKillContainerDeletedByRunc", commandLine},
		{"TestContainerRuntimeOptionsv2", "expects Create to fail for want of the runc that BinaryName names; here there is none to want, and options about it are accepted"},
		{"TestDaemonRuntimeRoot", "looks for runc's state below Root, and here there is no runc to have any"},
		{"TestCheckpointLeaveRunning", criu},
		{"TestCheckpointOnPauseStatus", criu},
		{"TestCheckpointRestore", criu},
		{"TestCheckpointRestoreNewContainer", criu},
		{"TestCheckpointRestorePTY", criu},
		{"TestCheckpointRestoreWithImagePath", criu},
		{"TestExportAllCases/export_image_setting_ocispec.AnnotationRefName", "names an image by a digest that only its real registry has"},
	}
}
