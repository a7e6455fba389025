package isolator

import "strings"

// App Container's names of the set of all system calls and of the empty set.
const (
	Everything = "@appc.io/all"
	Nothing    = "@appc.io/empty"
)

// defaultSet is the set of the system calls of an app without an isolator for system calls.
const defaultSet = "@rkt/default-whitelist"

// implied are the system calls that a filter of rkt always allows, because systemd does not
// count them as restricted. Without them no program could be executed.
const implied = "execve exit exit_group getrlimit rt_sigreturn sigreturn " +
	"clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep pause time"

// callsOf returns the system calls of a set that rkt 1.30 has a name for, or none. rkt's
// own two sets and Docker's are lists of 2016, without later calls. The other sets were
// those of the systemd in the pod; here they are systemd 252's.
func callsOf(name string) []string {
	return strings.Fields(listOf(name))
}

func listOf(name string) string {
	switch name {
	case defaultSet: // and calls that only ARM has
		return listOf("@docker/default-whitelist") +
			" arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2"
	case "@docker/default-whitelist":
		return `
			_llseek _newselect accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown
			chown32 chroot clock_getres clock_gettime clock_nanosleep clone close connect copy_file_range creat dup
			dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_wait epoll_wait_old
			eventfd eventfd2 execve execveat exit exit_group faccessat fadvise64 fadvise64_64 fallocate
			fanotify_mark fchdir fchmod fchmodat fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr
			flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate
			ftruncate64 futex futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid
			getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp
			getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage
			getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr inotify_add_watch
			inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_setup io_submit ioctl
			ioprio_get ioprio_set ipc kill lchown lchown32 lgetxattr link linkat listen listxattr llistxattr
			lremovexattr lseek lsetxattr lstat lstat64 madvise memfd_create mincore mkdir mkdirat mknod mknodat
			mlock mlock2 mlockall mmap mmap2 modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
			mq_timedsend mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep
			newfstatat open openat pause personality pipe pipe2 poll ppoll prctl pread64 preadv prlimit64 pselect6
			pwrite64 pwritev read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmsg
			remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rt_sigaction rt_sigpending
			rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
			sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
			sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
			sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop send sendfile sendfile64
			sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid
			setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32
			setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid
			setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigreturn socket
			socketcall socketpair splice stat stat64 statfs statfs64 symlink symlinkat sync sync_file_range syncfs
			sysinfo syslog tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime
			timerfd_create timerfd_gettime timerfd_settime times tkill truncate truncate64 ugetrlimit umask uname
			unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid waitpid write writev`
	case "@rkt/default-blacklist", "@docker/default-blacklist":
		return `
			_sysctl acct add_key adjtimex bpf clock_adjtime clock_settime create_module delete_module finit_module
			get_kernel_syms get_mempolicy init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl
			lookup_dcookie mbind mount move_pages name_to_handle_at nfsservctl open_by_handle_at perf_event_open
			pivot_root process_vm_readv process_vm_writev ptrace query_module quotactl reboot request_key
			set_mempolicy setns settimeofday stime swapoff swapon sysfs umount umount2 unshare uselib userfaultfd
			ustat vm86 vm86old`
	case "@systemd/clock":
		return `
			adjtimex clock_adjtime clock_adjtime64 clock_settime clock_settime64 settimeofday`
	case "@systemd/default-whitelist":
		return `
			arch_prctl brk cacheflush clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
			clock_nanosleep_time64 execve exit exit_group futex futex_time64 futex_waitv get_robust_list
			get_thread_area getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getpgid
			getpgrp getpid getppid getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getsid gettid
			gettimeofday getuid getuid32 membarrier mmap mmap2 mprotect munmap nanosleep pause prlimit64
			restart_syscall riscv_flush_icache riscv_hwprobe rseq rt_sigreturn sched_getaffinity sched_yield
			set_robust_list set_thread_area set_tid_address set_tls sigreturn time ugetrlimit uretprobe`
	case "@systemd/mount":
		return `
			chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root umount umount2`
	case "@systemd/network-io":
		return `
			accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
			recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socket socketcall socketpair`
	case "@systemd/obsolete":
		return `
			_sysctl afs_syscall bdflush break create_module ftime get_kernel_syms getpmsg gtty idle lock mpx prof
			profil putpmsg query_module security sgetmask ssetmask stime stty sysfs tuxcall ulimit uselib ustat
			vserver`
	case "@systemd/privileged":
		return `
			_sysctl acct adjtimex bpf capset chown chown32 chroot clock_adjtime clock_adjtime64 clock_settime
			clock_settime64 delete_module fanotify_init fanotify_mark fchown fchown32 fchownat finit_module
			init_module ioperm iopl kexec_file_load kexec_load lchown lchown32 nfsservctl open_by_handle_at
			pciconfig_iobase pciconfig_read pciconfig_write pivot_root quotactl quotactl_fd reboot
			s390_pci_mmio_read s390_pci_mmio_write setdomainname setfsuid setfsuid32 setgroups setgroups32
			sethostname setresuid setresuid32 setreuid setreuid32 settimeofday setuid setuid32 swapoff swapon
			vhangup`
	case "@systemd/process":
		return `
			capget clone clone3 execveat fork getrusage kill pidfd_open pidfd_send_signal prctl rt_sigqueueinfo
			rt_tgsigqueueinfo setns swapcontext tgkill times tkill unshare vfork wait4 waitid waitpid`
	case "@systemd/raw-io":
		return `
			ioperm iopl pciconfig_iobase pciconfig_read pciconfig_write s390_pci_mmio_read s390_pci_mmio_write`
	}
	return ""
}
