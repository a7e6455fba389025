/*
 * Builds a filter with libseccomp and writes its BPF program to standard
 * output. Words on standard input, separated by blanks:
 *
 *   default ACTION
 *   optimize
 *   arch NAME                         (as libseccomp spells it: x86, x32)
 *   remove NAME                       (the native one, for another machine)
 *   rule ACTION NAME COUNT [ARG OP A B]...
 *
 * ACTION is a SECCOMP_RET_* value in hexadecimal, OP one of NE LT LE EQ GE GT
 * MASKED_EQ, A and B are decimal. A rule that libseccomp refuses ends the
 * program with status 3. One that libseccomp never comes to an end with ends it
 * with SIGXCPU, after a second of processor time.
 *
 * With the argument "table" it writes NAME ARCH NUMBER for every system call
 * that libseccomp knows, and reads nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void die(const char *what, const char *name, int rc)
{
	fprintf(stderr, "%s %s: %s\n", what, name, strerror(-rc));
	exit(3);
}

static void word(char *buf)
{
	if (scanf("%63s", buf) != 1) {
		fprintf(stderr, "input ends within a line\n");
		exit(2);
	}
}

static enum scmp_compare operator(const char *name)
{
	static const char *const names[] = { "", "NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ" };
	for (int i = 1; i < 8; i++)
		if (!strcmp(name, names[i]))
			return (enum scmp_compare)i;
	fprintf(stderr, "operator %s?\n", name);
	exit(2);
}

static void rule(scmp_filter_ctx ctx)
{
	char name[64], buf[64];
	struct scmp_arg_cmp args[6];
	int count, rc, number;
	uint32_t action;

	word(buf);
	action = (uint32_t)strtoul(buf, NULL, 16);
	word(name);
	word(buf);
	count = atoi(buf);
	for (int i = 0; i < count && i < 6; i++) {
		word(buf);
		args[i].arg = (unsigned)atoi(buf);
		word(buf);
		args[i].op = operator(buf);
		word(buf);
		args[i].datum_a = strtoull(buf, NULL, 10);
		word(buf);
		args[i].datum_b = strtoull(buf, NULL, 10);
	}
	number = seccomp_syscall_resolve_name(name);
	if (number == __NR_SCMP_ERROR)
		return;
	rc = seccomp_rule_add_array(ctx, action, number, (unsigned)count, args);
	if (rc < 0)
		die("rule", name, rc);
}

static void table(void)
{
	static const struct { const char *name; uint32_t token; uint32_t bit; } archs[] = {
		{ "SCMP_ARCH_X86_64", SCMP_ARCH_X86_64, 0 },
		{ "SCMP_ARCH_X86", SCMP_ARCH_X86, 0 },
		{ "SCMP_ARCH_X32", SCMP_ARCH_X32, 0x40000000 },
		{ "SCMP_ARCH_AARCH64", SCMP_ARCH_AARCH64, 0 },
		{ "SCMP_ARCH_ARM", SCMP_ARCH_ARM, 0 },
		{ "SCMP_ARCH_ARM", SCMP_ARCH_ARM, 0xf0000 },
	};
	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		for (uint32_t n = 0; n < 1024; n++) {
			char *name = seccomp_syscall_resolve_num_arch(archs[i].token, (int)(n | archs[i].bit));
			if (name != NULL)
				printf("%s %s %" PRIu32 "\n", name, archs[i].name, n | archs[i].bit);
			free(name);
		}
}

int main(int argc, char **argv)
{
	char buf[64];
	struct rlimit cpu = { 1, RLIM_INFINITY }, core = { 0, 0 };
	scmp_filter_ctx ctx;
	int rc;

	setrlimit(RLIMIT_CPU, &cpu);
	setrlimit(RLIMIT_CORE, &core);
	if (argc > 1 && !strcmp(argv[1], "table")) {
		table();
		return 0;
	}
	word(buf); /* default */
	word(buf);
	ctx = seccomp_init((uint32_t)strtoul(buf, NULL, 16));
	if (ctx == NULL)
		die("default action", buf, -EINVAL);
	while (scanf("%63s", buf) == 1) {
		if (!strcmp(buf, "optimize")) {
			seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
		} else if (!strcmp(buf, "arch")) {
			word(buf);
			rc = seccomp_arch_add(ctx, seccomp_arch_resolve_name(buf));
			if (rc < 0 && rc != -EEXIST)
				die("arch", buf, rc);
		} else if (!strcmp(buf, "remove")) {
			word(buf);
			rc = seccomp_arch_remove(ctx, seccomp_arch_resolve_name(buf));
			if (rc < 0)
				die("removing", buf, rc);
		} else if (!strcmp(buf, "rule")) {
			rule(ctx);
		} else {
			fprintf(stderr, "%s?\n", buf);
			return 2;
		}
	}
	rc = seccomp_export_bpf(ctx, STDOUT_FILENO);
	if (rc < 0)
		die("exporting", "the program", rc);
	seccomp_release(ctx);
	return 0;
}
