/*
 * Installs the filter on standard input with the flags of the first argument,
 * and makes the system calls of the others in a child each: ARCH:NUMBER[:ARG],
 * where ARCH is x86_64, x86 or x32. Writes one line for each: "returned N" (N is
 * negative for an errno) or "signal N".
 * Exits with 2 if the filter could not be installed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long call(const char *arch, long number, long arg)
{
	long ret;

	if (!strcmp(arch, "x86")) {
		__asm__ volatile("int $0x80" : "=a"(ret) : "a"(number), "b"(arg), "c"(0), "d"(0)
				 : "memory", "r8", "r9", "r10", "r11");
		return (long)(int)ret;
	}
	if (!strcmp(arch, "x32"))
		number |= 0x40000000;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(number), "D"(arg), "S"(0), "d"(0)
			 : "memory", "rcx", "r11");
	return ret;
}

int main(int argc, char **argv)
{
	static struct sock_filter insns[BPF_MAXINSNS];
	struct sock_fprog prog = { 0, insns };
	struct rlimit core = { 0, 0 };
	ssize_t n, size = 0;

	setrlimit(RLIMIT_CORE, &core);
	while ((n = read(0, (char *)insns + size, sizeof(insns) - (size_t)size)) > 0)
		size += n;
	prog.len = (unsigned short)((size_t)size / sizeof(insns[0]));
	for (int i = 2; i < argc; i++) {
		int results[2], status;
		char arch[16];
		long number, arg = 0, ret;

		if (sscanf(argv[i], "%15[^:]:%ld:%ld", arch, &number, &arg) < 2 || pipe(results) < 0)
			return 2;
		pid_t child = fork();
		if (child == 0) {
			alarm(10); /* whatever the filter makes of the rest */
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, strtoul(argv[1], NULL, 10), &prog) < 0) {
				perror("seccomp");
				syscall(SYS_exit_group, 9);
			}
			ret = call(arch, number, arg);
			syscall(SYS_write, results[1], &ret, sizeof(ret));
			syscall(SYS_exit_group, 0);
			__builtin_trap(); /* the filter does not let it exit */
		}
		close(results[1]);
		n = read(results[0], &ret, sizeof(ret));
		close(results[0]);
		if (child < 0 || waitpid(child, &status, 0) < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 9))
			return 2;
		if (n == sizeof(ret))
			printf("returned %ld\n", ret);
		else if (WIFSIGNALED(status))
			printf("signal %d\n", WTERMSIG(status));
		else
			return 2;
	}
	return 0;
}
