package main

// deviation is a reason why a program does not pass with some columns.
type deviation struct {
	program string
	columns []string
	// checks is a regular expression for the texts of the checks that fail. If it is empty, none
	// fails, and the program ends with an error.
	checks string
	// varies says that the reason is the machine, or timing, so the program may also pass.
	varies bool
	reason string
}

// deviations lists the programs that do not pass.
func deviations() []deviation {
	var (
		all   = []string{"runc", "runc-shim", "native", "oci", "nspawn"}
		runcs = []string{"runc", "runc-shim", "oci"}
		ours  = []string{"native", "nspawn"}
	)
	const (
		noPoststart = "poststart hooks are refused, because runc 1.1 runs them before the program starts"
		noUsers     = "nspawn has no user namespaces, and refuses `uidMappings`"
	)
	list := []deviation{
		{"delete", []string{"runc"}, "attempting to `delete` .*", false, "runc's command line deletes created containers"},
		{"linux_ns_itype", ours, "cannot run validation tests: exit status 1", false,
			"the container shares containerd's mount namespace and has mounts: they would be made on the host, and the program expects that. Such a container is refused; without mounts it runs"},
		{"linux_ns_nopath", []string{"nspawn"}, "cannot run validation tests: exit status 1", false, noUsers},
		{"linux_uid_mappings", []string{"nspawn"}, "", false, noUsers},
		{"linux_ns_path", []string{"nspawn"}, "set mnt namespace by path", false, "a container of systemd-nspawn's has a new mount namespace; a path is refused by name"},
		{"mounts", ours, "", false, "a bind mount has the option `mode=755`, which bind mounts do not have. It is refused, as by runc 1.5; runc 1.1 ignores it"},
		{"linux_seccomp", runcs, "exit status 1|seccomp action is added correctly", false, "the filter refuses getcwd, which runc itself calls when the filter is there"},
		{"poststart", []string{"runc", "runc-shim"}, "The post-start hooks MUST be called before .*", false, "runc 1.1 runs these hooks before the program starts"},
		{"poststart", ours, "The post-start hooks MUST be called after .*", true, "the hook runs when the container's program has been executed, and the program expects that it has also written its output"},
		{"poststop_fail", []string{"runc", "runc-shim"}, "if any poststop hook fails, .*", false, "runc 1.1 does not run the hooks that follow one that fails"},
		{"hooks_stdin", []string{"runc"}, "the state of the container .*", false, "the program expects the status `created` for hooks of create, which is `creating`; runc 1.1 runs poststart hooks before the program starts"},
		{"hooks_stdin", []string{"runc-shim", "native", "nspawn"}, "the state of the container .*", false, "the program expects the path of its bundle, and containerd gives shims a bundle of its own; and the status `created` for hooks of create, which is `creating`"},
		{"linux_cgroups_devices", []string{"runc", "runc-shim"}, "devices c 10:229 rwm is set correctly", false, "the program expects its rules at the first lines of devices.list, where runc has the rules for every container's devices"},
		{"linux_cgroups_relative_devices", []string{"runc", "runc-shim"}, "devices c 10:229 rwm is set correctly", false, "as linux_cgroups_devices"},
		{"hooks", []string{"oci"}, "exit status 1", false, noPoststart},
		{"hooks_stdin", []string{"oci"}, "exit status 1|the state of the container .*", false, noPoststart},
		{"poststart_fail", []string{"oci"}, "if any poststart hook fails, .*", false, noPoststart},
		{"poststart", []string{"oci"}, "exit status 1", false, noPoststart},
	}
	return append(append(append(list, ofPrograms(all)...), ofSpecification(all)...), ofMachine(all, runcs, ours)...)
}

// ofPrograms lists faults of the programs themselves, which appear with all runtimes.
func ofPrograms(all []string) []deviation {
	return []deviation{
		{"hooks", []string{"runc", "runc-shim", "native", "nspawn"}, "Hooks MUST be called in the listed order", false, "the program removes the bundle before it reads the output of the hooks there"},
		{"pidfile", all, "create with '--pid-file' option works", true, "the container has often ended when the program kills it, and the program expects no error; the program `kill` expects one"},
		{"misc_props", all, ".*unknown annotation key", false, "the program names /runtimetest as the container's program and does not put it there"},
		{"process_rlimits", all, "has expected soft RLIMIT_NOFILE", false,
			"Go's runtime raises the soft limit of runtimetest itself. runc may end before, because it has RLIMIT_AS when it loads the seccomp filter"},
		{"start", all, "exit status 1", false, "the program creates a container without `process`, and expects an error of start. It is an error of create already"},
	}
}

// ofSpecification lists checks of rules of version 1.0 that later versions have changed.
func ofSpecification(all []string) []deviation {
	return []deviation{
		{"prestart", all, "Pre-start hooks MUST be called after .*", false, "version 1.3 has these hooks in create"},
		{"poststart_fail", []string{"runc", "runc-shim", "native", "nspawn"}, "if any poststart hook fails, .*", false, "by version 1.3 such a container is ended, and the error is reported"},
		{"process_capabilities_fail", all, "", false, "by version 1.3 an unknown capability is a warning and no error"},
	}
}

// ofMachine lists checks of features that the test machine lacks, which is a container with
// cgroup version 1.
func ofMachine(all, runcs, ours []string) []deviation {
	const (
		noCapability = "the machine does not have CAP_SYS_RESOURCE. "
		noWeight     = "the kernel has no blkio.leaf_weight"
		noKernel     = "the kernel has no limit of kernel memory any more"
		noNetwork    = "the hierarchies net_cls and net_prio are not mounted"
	)
	return []deviation{
		{"process_capabilities", ours, "expected .* CAP_SYS_RESOURCE set", true, noCapability + "By version 1.3 the others are set and a warning is logged"},
		{"process_capabilities", runcs, "", true, noCapability + "runc 1.1 refuses the container"},
		{"linux_rootfs_propagation", ours, "check root propagation", true, noCapability + "The propagation is as expected"},
		{"linux_rootfs_propagation", runcs, "exit status 1", true, noCapability + "runc 1.1 refuses the container"},
		{"linux_cgroups_blkio", all, "", true, noWeight},
		{"linux_cgroups_relative_blkio", all, "exit status 1", true, noWeight},
		{"linux_cgroups_hugetlb", all, "", true, "the hierarchy hugetlb is not mounted"},
		{"linux_cgroups_relative_hugetlb", all, "exit status 1", true, "the hierarchy hugetlb is not mounted"},
		{"linux_cgroups_memory", []string{"native", "nspawn", "oci"}, "memory kernel is set correctly", true, noKernel},
		{"linux_cgroups_memory", []string{"runc", "runc-shim"}, "memory kernel(TCP)? is set correctly", true, noKernel + "; runc does not set `kernelTCP`"},
		{"linux_cgroups_relative_memory", []string{"native", "nspawn", "oci"}, "memory kernel is set correctly", true, noKernel},
		{"linux_cgroups_relative_memory", []string{"runc", "runc-shim"}, "memory kernel(TCP)? is set correctly", true, noKernel + "; runc does not set `kernelTCP`"},
		{"linux_cgroups_network", all, "", true, noNetwork + ", and there is one network interface, where the program wants two"},
		{"linux_cgroups_relative_network", all, "exit status 1", true, noNetwork},
		{"linux_mount_label", all, "", true, "SELinux is off"},
		{"linux_process_apparmor_profile", all, "", true, "AppArmor is off"},
	}
}
