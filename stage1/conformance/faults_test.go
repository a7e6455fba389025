package conformance_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// broken is an image with one fault: a bundled image in which a script replaces an
// entrypoint. The script can call the original entrypoint as `correct`. An empty script just
// calls it.
type broken struct {
	base  string // "native" unless told otherwise
	entry string // file name of the entrypoint
	body  string
	more  map[string]string // bodies of further entrypoints
	// manifest changes the entrypoint annotations.
	manifest func(map[string]string)
	features func(string) string
	// socket is where the image declares its socket; without one, every call is executed.
	socket string
	liar   bool // the scripts call lie
}

// notYetReported lets enter do its work, sets told to its ready line and pid to its process, and
// gives a program that ends at once the time to end.
const notYetReported = `real=$RKT_READY_FD; f=stage1/rootfs/rkt/ready.$$; exec 9>"$f"; export RKT_READY_FD=9
correct "$@" || exit
exec 9>&-; told=$(cat "$f"); pid=${told#*:}; pid=${pid%%[!0-9 ]*}; pid=${pid# }; sleep 0.2
`

// prelude is the beginning of every script.
const prelude = `#!/bin/sh
set -u
right=${0%/*}/right/${0##*/}
correct() { "$right" "$@"; }
fail() { echo "$1" >&"$RKT_ERROR_FD"; exit "${2:-1}"; }
ready() { echo "{\"pid\": $1}" >&"$RKT_READY_FD"; }
# edit SED: changes the request that correct gets to read.
edit() {
	sed "$1" "$RKT_STAGE1_REQUEST" >"stage1/rootfs/rkt/edited.$$" || exit 1
	RKT_STAGE1_REQUEST=$PWD/stage1/rootfs/rkt/edited.$$
}
# lie POINTER [JSON]: drops a field of the spec or process that correct gets to read, or
# replaces it.
lie() {
	told=$((${told:-0} + 1)) && "${0%/*}/liar" "$RKT_STAGE1_REQUEST" "$@" >"stage1/rootfs/rkt/lie.$$.$told" || exit 1
	RKT_STAGE1_REQUEST=$PWD/stage1/rootfs/rkt/lie.$$.$told
}
# quietly CALL: with the words of its failure lost.
quietly() { ( exec 8>/dev/null; RKT_ERROR_FD=8 "$@" ); }
`

// image makes the image. The original rootfs is in rootfs/right.
func (b broken) image(t *testing.T) string {
	t.Helper()
	if b.base == "" {
		b.base = "native"
	}
	base, dir := bundledImage(t, b.base), filepath.Join(t.TempDir(), "image")
	must(t, os.MkdirAll(filepath.Join(dir, "rootfs/opt/stage2"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "rootfs/rkt"), 0o755))
	// Links take no time, and os.CopyFS would give every user the right to read the programs.
	if out, err := exec.Command("cp", "-alT", filepath.Join(base, "rootfs"), filepath.Join(dir, "rootfs/right")).CombinedOutput(); err != nil {
		t.Fatalf("copy the image: %v: %s", err, out)
	}
	scripts := maps.Clone(b.more)
	if scripts == nil {
		scripts = map[string]string{}
	}
	if b.entry != "" {
		scripts[b.entry] = b.body
	}
	for name, body := range scripts {
		text := prelude + body + "\nexec \"$right\" \"$@\"\n"
		must(t, os.WriteFile(filepath.Join(dir, "rootfs", name), []byte(text), 0o755))
	}
	if b.liar {
		must(t, os.Link(filepath.Join(built.dir, "liar"), filepath.Join(dir, "rootfs/liar")))
	}
	if b.features != nil {
		file := filepath.Join(dir, "rootfs/right/features.json")
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.Remove(file)) // it is a link
		must(t, os.WriteFile(file, []byte(b.features(string(text))), 0o644))
	}
	b.writeManifest(t, base, dir, scripts)
	return dir
}

func (b broken) writeManifest(t *testing.T, base, dir string, scripts map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(base, "manifest"))
	must(t, err)
	var manifest map[string]any
	must(t, json.Unmarshal(text, &manifest))
	annotations := map[string]string{}
	for _, a := range manifest["annotations"].([]any) {
		pair := a.(map[string]any)
		name, value := strings.TrimPrefix(pair["name"].(string), abi.AnnotationPrefix), pair["value"].(string)
		if strings.HasPrefix(value, "/") {
			value = "/right" + value
		}
		annotations[name] = value
	}
	for name := range scripts {
		annotations[strings.Replace(name, "_", "/", 1)] = "/" + name
	}
	if b.socket == "" {
		delete(annotations, "serve") // the scripts are to be executed
	} else {
		annotations["serve"] = b.socket
	}
	if b.manifest != nil {
		b.manifest(annotations)
	}
	var list []map[string]string
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		list = append(list, map[string]string{"name": abi.AnnotationPrefix + name, "value": annotations[name]})
	}
	manifest["annotations"] = list
	text, err = json.Marshal(manifest)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "manifest"), text, 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Scripts that several faults have in common.
const (
	// wrongWords fails as it should, but without the words that clients look for.
	wrongWords = `quietly correct "$@" && exit 0; fail "that did not work"`
	// noise goes to the app's output.
	noise = `echo "about to do it"`
	// busy allows one call at a time, and fails others.
	busy = `mkdir stage1/rootfs/rkt/busy 2>/dev/null || fail "another call is under way"
correct "$@"; code=$?
sleep 1
rmdir stage1/rootfs/rkt/busy
exit $code`
	// once succeeds the first time.
	once = `mkdir "stage1/rootfs/rkt/once-${0##*/}" 2>/dev/null || fail "not again"`
	// escape takes the app out of its cgroup when it was added.
	escape = `correct "$@" || exit
IFS=:
for d in $RKT_CGROUP; do
	mkdir -p "$d-escaped" && for p in $(cat "$d/cgroup.procs"); do
		for f in cpus mems; do [ ! -e "$d/cpuset.$f" ] || cat "$d/cpuset.$f" >"$d-escaped/cpuset.$f"; done
		echo "$p" >"$d-escaped/cgroup.procs"
	done
done
exit 0`
	// idle is a supervisor that does nothing at all.
	idle = `ready $$; exec sleep 1000`
	// program runs the program of the checks without any isolation.
	program = `root=$(sed -n 's/.*"rootfs":"\([^"]*\)".*/\1/p' "$RKT_STAGE1_REQUEST")
[ -n "$root" ] || root=$(sed -n 's/.*"root":{"path":"\([^"]*\)".*/\1/p' "$RKT_BUNDLE/config.json")
program=/bin/$(ls "$root/bin" | grep -v -- -)
`
	inspectWithMore = program + `chroot "$root" "$program" inspect 7</dev/null 3>&- 4>&- & pid=$!
read -r stat <"/proc/$pid/stat"; set -- $stat # a process that was reaped is recognised by its start time alone
echo "{\"pid\": $pid, \"starttime\": ${22}}" >&"$RKT_READY_FD"; wait $pid; exit`
	inspectInside = program + `IFS=:; for d in $RKT_CGROUP ${RKT_CGROUP_UNIFIED:-}; do echo 0 >"$d/cgroup.procs"; done; unset IFS
(chroot "$root" "$program" inspect 7</dev/null; exec sleep 1000) 3>&- 4>&- & ready $!; exit`
	nothing       = `exit 0`
	anotherFormat = program + `edit 's#"/bin/no-format"#"'"$program"'","exit","0"#'`
	noEnvironment = `edit 's/"VERIFY_[^"]*/"VERIFY=/'`
	tracedProgram = `edit "s/VERIFY_/RKT_TRACEPARENT=$RKT_TRACEPARENT\",\"VERIFY_/"`
	unmasked      = `lie /linux/maskedPaths; lie /linux/readonlyPaths; lie /mounts/3/options`
	open          = `lie /process/noNewPrivileges; lie /linux/seccomp; lie /process/rlimits`
	joins         = `grep -q '"path":"/proc/[0-9]*/ns/' "$RKT_STAGE1_REQUEST"`
	noSize        = `edit 's/"consoleSize":{[^}]*},*//'`
)

// Faulty holders of a pod's namespaces: one with a writable /proc, and one whose program
// every user may read.
const (
	writable = `own=$PWD/stage1/rootfs/rkt/own; mkdir -p "$own"
sed 's#"readonlyPaths":\[[^]]*\]#"readonlyPaths":[]#' "$RKT_BUNDLE/config.json" >"$own/config.json"; RKT_BUNDLE=$own`
	dumpable = `own=$PWD/stage1/rootfs/rkt/own; mkdir -p "$own/dev"; cp "$(command -v busybox)" "$own/" || exit 1
edit 's#"args":\["/hold"\]#"args":["/busybox","sleep","1000"]#; s@"rootfs":"[^"]*"@"rootfs":"'"$own"'"@'`
)

// stopped ends the app and does nothing else.
const stopped = `edit 's#"app/checkpoint"#"app/stop"#'; exec "${right%_*}_stop" --debug=false --app="$RKT_APP"`

// checkpoints only pretends to write them.
func checkpoints(how string) broken {
	return broken{more: map[string]string{"app_checkpoint": how}}
}

// fault breaks one check.
type fault struct {
	check string
	broken
	says  string // a text that the check's failure must contain, or several with | between
	waits bool   // whether the check notices only by waiting until its time is over
}

// patience is how long the fault's check may take.
func (f fault) patience() time.Duration {
	if f.waits {
		return 6 * time.Second * conformance.Pace()
	}
	return time.Minute * conformance.Pace()
}

// The conditions of stage1s that isolate only some programs.
const (
	onTerminal = `grep -q '"terminal":true' "$RKT_STAGE1_REQUEST"`
	byUsers    = `! grep -qE '"user":[{]"uid":(0|4711),' "$RKT_STAGE1_REQUEST"`
	notFirst   = `! mkdir "stage1/rootfs/rkt/first-${0##*/}" 2>/dev/null`
)

// opens ignores fields of the programs that meet a condition.
func opens(name, condition string) broken {
	return broken{entry: name, body: `if ` + condition + `; then ` + open + `; fi`, liar: true}
}

// loosens writes other values to files of the app's cgroup, of whichever version has them.
func loosens(values map[string]string) broken {
	body := `correct "$@" || exit
IFS=:; for d in $RKT_CGROUP; do
`
	for _, name := range slices.Sorted(maps.Keys(values)) {
		body += `[ ! -e "$d/` + name + `" ] || echo "` + values[name] + `" >"$d/` + name + "\"\n"
	}
	return entry("app_add", body+"done; exit 0")
}

// limitFaults has a stage1 for each limit that stage 0 sets, which loosens it.
func limitFaults() (all []fault) {
	disk := "$(cat $(ls /sys/block/*/dev | head -n 1))"
	for name, values := range map[string]map[string]string{
		"cpu-shares":         {"cpu.shares": "1024", "cpu.weight": "100"},
		"cpu-time":           {"cpu.cfs_quota_us": "-1", "cpu.max": "max"},
		"cpu-burst":          {"cpu.cfs_burst_us": "0", "cpu.max.burst": "0"},
		"cpu-idle":           {"cpu.idle": "0"},
		"cpus":               {"cpuset.cpus": "0-1"},
		"memory-reservation": {"memory.soft_limit_in_bytes": "-1", "memory.low": "0"},
		"memory-swap":        {"memory.memsw.limit_in_bytes": "-1", "memory.swap.max": "max"},
		"memory-swappiness":  {"memory.swappiness": "100"},
		"memory-oom":         {"memory.oom_control": "0"},
		"memory-tcp":         {"memory.kmem.tcp.limit_in_bytes": "-1"},
		"io-weight":          {"blkio.bfq.weight": "100", "blkio.weight": "500", "io.bfq.weight": "100", "io.weight": "100"},
		"io-weight-device":   {"blkio.bfq.weight_device": disk + " 100", "io.bfq.weight": disk + " 100"},
		"io-read-bytes":      {"blkio.throttle.read_bps_device": disk + " 0", "io.max": disk + " rbps=max"},
		"io-write-bytes":     {"blkio.throttle.write_bps_device": disk + " 0", "io.max": disk + " wbps=max"},
		"io-reads":           {"blkio.throttle.read_iops_device": disk + " 0", "io.max": disk + " riops=max"},
		"io-writes":          {"blkio.throttle.write_iops_device": disk + " 0", "io.max": disk + " wiops=max"},
		"pids":               {"pids.max": "max"},
		"devices":            {"devices.allow": "a"},
		"hugepages":          {"hugetlb.2MB.limit_in_bytes": "-1", "hugetlb.2MB.max": "max"},
		"network-class":      {"net_cls.classid": "0"},
		"network-priority":   {"net_prio.ifpriomap": "lo 0"},
		"unified":            {"memory.high": "max"},
	} {
		all = append(all, fault{check: "limit/" + name, broken: loosens(values), says: "is not in force|is ignored"})
	}
	return append(all,
		fault{check: "limit/memory-nodes", broken: entry("app_add", escape), says: outside},
		fault{check: "limit/rdma", broken: entry("app_add", escape), says: outside},
		fault{check: "limit/pids", broken: entry("app_add", escape), says: outside})
}

// outside is what stage 0 says of an app that has left its cgroup.
const outside = "is outside of its cgroup"

// knows honours a field only if the spec has the value that was once the kit's.
func knows(name, usual, field string) broken {
	return broken{entry: name, body: `grep -qF '` + usual + `' "$RKT_STAGE1_REQUEST" || lie ` + field, liar: true}
}

// owning declares that the image owns its namespaces.
func owning(annotations map[string]string) { annotations["own"] = "namespaces" }

func entry(name, body string) broken { return broken{entry: name, body: body} }

func faults() []fault {
	pretended := broken{more: map[string]string{"app_pause": nothing, "app_resume": nothing}}
	endless := "the check has not ended in its time"
	return append(limitFaults(), []fault{
		{check: "image/declares", broken: broken{features: func(s string) string { return strings.Replace(s, `"/process/args"`, `"/process/cwd"`, 1) }}, says: "/process/args"},
		{check: "image/pairs", broken: broken{manifest: func(a map[string]string) {
			delete(a, "app/rm")
			delete(a, "without") // its pods are immutable now
		}}, says: "only some are declared"},
		{check: "features/probe", broken: broken{base: "oci", entry: "features_probe", body: `echo hello`}, says: "features document"},
		{check: "run/ready", broken: entry("run", `ready $$; exit 0`), says: "has ended|does not live"},
		{check: "run/lock", broken: entry("run", `eval "exec $RKT_LOCK_FD</dev/null"`), says: "no process holds the lock"},
		{check: "run/hangup", broken: entry("run", idle), says: "the run process has ended"},
		{check: "run/terminate", broken: broken{base: "oci", entry: "run", body: `mkdir -p stage1/rootfs/rkt/oci/apps; ` + idle}, says: "is gone after SIGTERM", waits: true},
		{check: "network/told", broken: broken{more: map[string]string{"network": `kill -0 "$(sed -n 's#.*"netns":"/proc/\([0-9]*\)/.*#\1#p' "$RKT_STAGE1_REQUEST")" || fail "there is no such namespace"; exit 0`}}, says: "there is no such namespace"},
		{check: "add/blocked", broken: entry("app_add", `correct "$@" || exit; edit 's#"app/add"#"app/start"#'; "${right%_*}_start" --debug=false --app="$RKT_APP" || exit; sleep 3; exit 0`), says: "before app/start the program has written"},
		{check: "add/namespaces", broken: entry("app_add", `edit 's/,{"type":"uts"}//'`), says: "the uts namespace is the host's"},
		{check: "add/cgroup", broken: entry("app_add", `sleep 1000 </dev/null >/dev/null 2>&1 3>&- 4>&- &
IFS=:; for d in $RKT_CGROUP; do echo $! >"$d/cgroup.procs"; done; unset IFS`), says: "alone"},
		{check: "add/descriptors", broken: broken{more: map[string]string{
			"app_add": `exec 7<.; sleep 1000 3>&- 4>&- & ready $!; exit 0`, "app_start": nothing, "app_rm": nothing,
		}}, says: "has the pod's directory open"},
		{check: "add/missing", broken: entry("app_add", wrongWords), says: "in other words"},
		{check: "add/not-in-path", broken: entry("app_add", wrongWords), says: "in other words"},
		{check: "add/not-executable", broken: entry("app_add", wrongWords), says: "in other words"},
		{check: "add/directory", broken: entry("app_add", wrongWords), says: "in other words"},
		{check: "add/working-directory", broken: entry("app_add", `edit 's#"cwd":"[^"]*"#"cwd":"/"#'`), says: "app/add has succeeded"},
		{check: "add/undone", broken: entry("app_add", `correct "$@" && exit
setsid sh -c ': >stage1/rootfs/rkt/away; exec sleep 1000' &
while [ ! -e stage1/rootfs/rkt/away ]; do sleep 0.1; done
exit 1`), says: "only the processes of before", waits: true},
		{check: "add/unknown-value", broken: entry("app_add", `edit 's/,{"type":"conformance"}//'`), says: "app/add has succeeded"},
		{check: "add/killed", broken: entry("app_add", `setsid sleep 1000 </dev/null >/dev/null 2>&1 3>&- 4>&- & pid=$!; sleep 1; correct "$@"; code=$?; kill $pid; exit $code`), says: "left behind: process"},
		{check: "add/second", broken: entry("app_add", once), says: "not again"},
		{check: "add/concurrent", broken: entry("app_add", busy), says: "another call is under way"},
		{check: "hooks/order", broken: entry("app_add", `edit 's/"createRuntime":/"createRuntimes":/'`), says: "want prestart and createRuntime"},
		{check: "start/program", broken: entry("app_add", noEnvironment), says: "is without"},
		{check: "start/program", broken: entry("app_add", tracedProgram), says: "has variables of the ABI"},
		{check: "start/relative-root", broken: entry("app_add", `! grep -q '"root":{"path":"\.\.' "$RKT_BUNDLE/config.json" || fail "nothing is there"`), says: "nothing is there"},
		{check: "start/descriptors", broken: broken{more: map[string]string{"app_add": inspectInside, "app_start": nothing, "app_rm": nothing}}, says: "the program has the descriptors [0 1 2 7"},
		{check: "start/no-format", broken: entry("app_add", anotherFormat), says: "has ended with 0"},
		{check: "start/ended", broken: entry("app_start", `correct "$@"; exit 0`), says: "exit code 0, want 6"},
		{check: "streams/output", broken: entry("app_add", noise), says: "about to do it"},
		{check: "streams/input", broken: entry("app_add", `exec </dev/null`), says: `the output is ""`},
		{check: "signal/handled", broken: entry("app_signal", `edit 's/"signal":10/"signal":15/'`), says: "the exit code is 55, want 50"},
		{check: "signal/kill", broken: entry("app_signal", `edit 's/"signal":9/"signal":15/'`), says: "the exit code is 55, want 137"},
		{check: "signal/created", broken: entry("app_signal", nothing), says: endless, waits: true},
		{check: "signal/gone", broken: entry("app_signal", `correct "$@"; exit 0`), says: "exit code 0, want 5"},
		{check: "exit/code", broken: entry("app_add", `edit 's/"73"/"74"/'`), says: "the exit code is 74, want 73"},
		{check: "exit/recorded", broken: entry("app_start", `correct "$@" || exit; rm -r stage1/rootfs/rkt/status; : >stage1/rootfs/rkt/status; exit 0`), says: "not on record"},
		{check: "exit/notice", broken: entry("run", `eval "exec $RKT_NOTIFY_FD>/dev/null"`), says: "its end was not reported", waits: true},
		{check: "exit/notice", broken: entry("run", `f=stage1/rootfs/rkt/notices; mkfifo "$f"
sed -u 's/code=3/code=4/' <"$f" >&"$RKT_NOTIFY_FD" 2>/dev/null 3>&- 4>&- 5>&- &
eval "exec $RKT_NOTIFY_FD>$f"`), says: "stage 0 is told 4"},
		{check: "exit/notice", broken: entry("run", `f=stage1/rootfs/rkt/notices; mkfifo "$f"
sed -u 's/code=3/code=many/' <"$f" >&"$RKT_NOTIFY_FD" 2>/dev/null 3>&- 4>&- 5>&- &
eval "exec $RKT_NOTIFY_FD>$f"`), says: "is not a number"},
		{check: "exit/notice", broken: entry("run", `edit 's/"version"/"noticeWords":true,"version"/'`), says: "has not asked"},
		{check: "app-stop/living", broken: entry("app_stop", nothing), says: "its end was not reported", waits: true},
		{check: "app-stop/created", broken: entry("app_stop", nothing), says: "its end was not reported", waits: true},
		{check: "app-stop/ended", broken: entry("app_stop", `fail "it does not run" 6`), says: "exit code 6, want 0"},
		{check: "app-stop/unknown", broken: entry("app_stop", nothing), says: "exit code 0, want 5"},
		{check: "app-rm/living", broken: entry("app_rm", nothing), says: "exit code 0, want 6"},
		{check: "app-rm/ended", broken: entry("app_rm", once), says: "the second app/rm: exit code 1"},
		{check: "app-rm/unknown", broken: entry("app_rm", `fail "who is $RKT_APP?" 5`), says: "exit code 5, want 0"},
		{check: "stop/apps", broken: entry("stop", nothing), says: "after stop the supervisor goes on", waits: true},
		{check: "stop/over", broken: entry("stop", once), says: "exit code 1, want 0"},
		{check: "stop/force", broken: entry("stop", `[ "$1" != --force ] || exit 0`), says: "after stop the supervisor goes on", waits: true},
		{check: "gc/twice", broken: entry("gc", once), says: "the second gc: exit code 1"},
		{check: "gc/never-ran", broken: entry("gc", `fail "there is nothing"`), says: "gc: exit code 1"},
		{check: "crash/seen", broken: entry("run", `setsid sleep 1000 </dev/null >/dev/null 2>&1 &`), says: "the notice pipe ends", waits: true},
		{check: "crash/buried", broken: entry("run", `mkdir ../../once || fail "the pod before is in the way"`), says: "the pod after it"},
		{check: "crash/cleaned", broken: entry("app_rm", `kill -0 "$RKT_STAGE1_ENTERPID" || fail "the supervisor has gone"`), says: "app/rm: exit code 1"},
		{check: "crash/collected", broken: entry("app_stop", `correct "$@"; echo 0 >"stage1/rootfs/rkt/status/$RKT_APP"; exit 0`), says: "want a container that was found, and killed"},
		{check: "serve/socket", broken: broken{socket: "/rkt/absent.sock"}, says: "no such file or directory"},
		{check: "serve/same", broken: broken{entry: "app_rm", body: `fail "who is $RKT_APP?" 5`, socket: "/rkt/native.sock"}, says: "app/rm of an unknown app: on the socket it ends with exit code 0, and when it is executed with exit code 5"},
		{check: "enter/program", broken: entry("enter", noEnvironment), says: "is without"},
		{check: "enter/program", broken: entry("enter", tracedProgram), says: "has variables of the ABI"},
		{check: "enter/inside", broken: broken{entry: "enter", body: `real=$RKT_READY_FD; exec 9>"stage1/rootfs/rkt/ready"; export RKT_READY_FD=9
correct "$@" || exit
IFS=:
for d in $RKT_CGROUP; do
	mkdir -p "$d-escaped"
	for f in cpus mems; do [ ! -e "$d/cpuset.$f" ] || cat "$d/cpuset.$f" >"$d-escaped/cpuset.$f"; done
	tail -n 1 "$d/cgroup.procs" >"$d-escaped/cgroup.procs"
done
cat stage1/rootfs/rkt/ready >&"$real"; exit 0`}, says: "is not in the cgroup of its app"},
		{check: "enter/streams", broken: entry("enter", noise), says: "about to do it"},
		{check: "enter/descriptors", broken: entry("enter", inspectWithMore), says: "the program has the descriptors [0 1 2 7"},
		{check: "enter/code", broken: entry("enter", `edit 's/"74"/"75"/'`), says: "the exit code is 75, want 74"},
		{check: "enter/early", broken: broken{base: "oci", entry: "enter", body: notYetReported + `grep -q '^State:.[^Z]' "/proc/$pid/status" 2>/dev/null || told='{"pid": '$$'}'
echo "$told" >&"$real"; exit 0`}, says: "the exit code is 0, want 80"},
		{check: "enter/late", broken: broken{base: "oci", entry: "enter", body: notYetReported + `exec perl -e 'if ($p = fork) { open(R, ">&=$ARGV[1]"); syswrite(R, "{\"pid\": $p}\n"); exit 0 }
open(R, ">&=$ARGV[1]"); close R; select(undef, undef, undef, 0.05) while kill 0, $ARGV[0]; exit 0' "$pid" "$real"`}, says: "the exit code is 0, want 79"},
		{check: "enter/signal", broken: entry("app_signal", `edit 's/"exec":"exec",//'; unset RKT_EXEC`), says: "the exit code is 137, want 55"},
		{check: "enter/missing", broken: entry("enter", wrongWords), says: "in other words"},
		{check: "enter/not-executable", broken: entry("enter", wrongWords), says: "in other words"},
		{check: "enter/no-format", broken: entry("enter", anotherFormat), says: "enter has succeeded"},
		{check: "enter/several", broken: entry("enter", busy), says: "another call is under way"},
		{check: "enter/ended", broken: entry("enter", `correct "$@" || exit 1`), says: "exit code 1, want 5"},
		{check: "terminal/app", broken: entry("app_add", noSize), says: "the size is"},
		{check: "terminal/exec", broken: entry("enter", noSize), says: "the size is"},
		{check: "terminal/resize", broken: entry("app_add", `edit 's/"resized"/"inspect"/'`), says: "the app's output: it has ended"},
		{check: "terminal/input", broken: entry("app_add", `edit 's/"wait"/"echo"/'`), says: `wait for "waiting"`, waits: true},
		{check: "root/below", broken: entry("app_add", `edit 's/"version"/"options":{"noPivotRoot":true},"version"/'`), says: "mounts are below the app's root"},
		{check: "root/app", broken: broken{entry: "app_add", body: unmasked, liar: true}, says: "fresh proc: a new one can be mounted"},
		{check: "root/exec", broken: broken{entry: "app_add", body: unmasked, liar: true}, says: "fresh sysfs: a new one can be mounted"},
		// Each of these isolates programs, but for those of one situation.
		{check: "situation/app-sandbox", broken: opens("app_add", joins), says: "/process/noNewPrivileges is ignored"},
		{check: "situation/app-terminal", broken: opens("app_add", onTerminal), says: "/process/rlimits/*/type"},
		{check: "situation/app-user", broken: opens("app_add", byUsers), says: "/linux/seccomp/syscalls/*/names"},
		{check: "situation/app-second", broken: opens("app_add", notFirst), says: "/process/noNewPrivileges is ignored"},
		{check: "situation/exec-sandbox", broken: broken{liar: true, more: map[string]string{
			"app_add": joins + ` && : >stage1/rootfs/rkt/joined`, "enter": `! [ -e stage1/rootfs/rkt/joined ] || { ` + open + `; }`,
		}}, says: "/process/noNewPrivileges is ignored"},
		{check: "situation/exec-terminal", broken: opens("enter", onTerminal), says: "/process/noNewPrivileges is ignored"},
		{check: "situation/exec-user", broken: opens("enter", byUsers), says: "/process/noNewPrivileges is ignored"},
		{check: "situation/exec-second", broken: opens("enter", notFirst), says: "/process/noNewPrivileges is ignored"},
		{check: "situation/exec-second", broken: broken{entry: "enter", body: `lie /process/oomScoreAdj`, liar: true}, says: `oom_score_adj is`},
		{check: "exec-honours/oom-score", broken: broken{entry: "enter", body: `lie /process/oomScoreAdj`, liar: true}, says: "/process/oomScoreAdj is ignored"},
		// Each of these knows the values, and names, that the kit asked for before it drew them.
		{check: "honours/no-new-privileges", broken: knows("app_add", `"/bin/stage1-verify-app"`, `/process/noNewPrivileges`), says: "/process/noNewPrivileges is ignored"},
		{check: "exec-honours/no-new-privileges", broken: knows("enter", `"/bin/stage1-verify-app"`, `/process/noNewPrivileges`), says: "/process/noNewPrivileges is ignored"},
		{check: "honours/capabilities", broken: knows("app_add", `["CAP_CHOWN","CAP_KILL"]`, `/process/capabilities`), says: "is ignored"},
		{check: "honours/ambient", broken: broken{entry: "app_add", body: `if ` + byUsers + `; then lie /process/capabilities/ambient; fi`, liar: true}, says: "is ignored"},
		{check: "honours/rlimits", broken: knows("app_add", `"soft":4096`, `/process/rlimits`), says: "is ignored"},
		{check: "honours/groups", broken: knows("app_add", `[5001,5002]`, `/process/user/additionalGids`), says: "is ignored"},
		{check: "honours/umask", broken: knows("app_add", `"umask":23`, `/process/user/umask`), says: "is ignored"},
		{check: "exec-honours/oom-score", broken: knows("enter", `"oomScoreAdj":321`, `/process/oomScoreAdj`), says: "is ignored"},
		{check: "honours/hostname", broken: knows("app_add", `"verify-host"`, `/hostname`), says: "is ignored"},
		{check: "honours/sysctl", broken: knows("app_add", `"kernel.msgmax":"4000"`, `/linux/sysctl`), says: "is ignored"},
		{check: "honours/masked-paths", broken: knows("app_add", `"/data"`, `/linux/maskedPaths`), says: "is ignored"},
		{check: "honours/seccomp", broken: knows("app_add", `"errnoRet":71`, `/linux/seccomp`), says: "is ignored"},
		{check: "start/program", broken: knows("app_add", `"VERIFY=`, `/process/env`), says: "is without"},
		{check: "pause/app", broken: pretended, says: "while it was paused it has written"},
		{check: "pause/exec", broken: pretended, says: "while it was paused it has written"},
		{check: "pause/kill", broken: entry("app_signal", nothing), says: endless, waits: true},
		{check: "limit/memory", broken: entry("app_add", escape), says: outside},
		{check: "update/memory", broken: entry("app_add", escape), says: outside},
		{check: "stats/memory", broken: entry("app_add", escape), says: outside},
		{check: "stats/processes", broken: entry("app_add", escape), says: outside},
		{check: "oom/event", broken: entry("app_add", escape), says: outside},
		{check: "user/mapped", broken: entry("app_add", `edit 's/"hostID":[0-9]*/"hostID":100000/g'`), says: `"0 100000 65536"`},
		{check: "user/exec", broken: entry("app_add", `edit 's/"hostID":[0-9]*/"hostID":100000/g'`), says: `"0 100000 65536"`},
		{check: "sandbox/empty", broken: entry("run", `edit 's/"hostname":"[^"]*"/"hostname":"another"/g'`), says: `its hostname is "another"`},
		{check: "sandbox/closed", broken: broken{base: "oci", entry: "run", body: writable}, says: "the host's /proc/sys/kernel/core_pattern can be written to"},
		{check: "sandbox/closed", broken: entry("run", dumpable), says: "its own, anybody opens root/."},
		{check: "sandbox/app", broken: entry("app_add", `edit 's#,"path":"/proc/[0-9]*/ns/ipc"##'`), says: "is not in the ipc namespace of the pod"},
		// Each of these owns its namespaces, so that only programs in it can see them.
		{check: "sandbox/inside", broken: broken{manifest: owning, entry: "app_add", body: `edit 's#,"path":"/proc/[0-9]*/ns/[a-z]*"##g'`}, says: "an app of the pod is not in its namespaces: file /proc/sys/kernel/hostname"},
		{check: "sandbox/inside", broken: broken{manifest: owning, entry: "app_add", body: `edit 's#,"path":"/proc/[0-9]*/ns/net"##g'`}, says: "a second app of the pod is not in its namespaces: "},
		{check: "sandbox/inside", broken: broken{manifest: owning, entry: "run", body: `edit 's/"hostname":"[^"]*"/"hostname":"another"/g'`}, says: `hostname is "another"`},
		{check: "sandbox/pids", broken: broken{manifest: owning, entry: "app_add", body: `edit 's#,"path":"/proc/[0-9]*/ns/pid"##g'`}, says: `"no", want yes`},
		{check: "situation/app-sandbox", broken: broken{manifest: owning, entry: "app_add", body: `if ` + joins + `; then ` + open + `; fi`, liar: true}, says: "is ignored"},
		{check: "sandbox/stop", broken: entry("run", `setsid sleep 1000 </dev/null >/dev/null 2>&1 3>&- 4>&- &`), says: "left behind: process"},
		{check: "checkpoint/goes-on", broken: checkpoints(stopped), says: "after its checkpoint"},
		{check: "checkpoint/restore", broken: checkpoints(stopped), says: "it has begun anew"},
		{check: "checkpoint/paused", broken: checkpoints(nothing), says: "it has begun anew"},
	}...)
}

func TestEveryCheckCanFail(t *testing.T) {
	all := faults()
	proven := map[string]bool{}
	for _, l := range liars() {
		for _, checks := range l.fields {
			for _, id := range checks {
				proven[id] = true
			}
		}
	}
	for _, f := range all {
		proven[f.check] = true
		t.Run(f.check, func(t *testing.T) {
			t.Parallel()
			v := verifyJSON(t, "--timeout", f.patience().String(), "--run", f.check, f.image(t))
			if len(v.Checks) == 1 && v.Checks[0].Reason == "machine" {
				t.Skip(v.Checks[0].Words)
			}
			if v.code != 1 || v.Holds || len(v.Checks) != 1 || v.Checks[0].Outcome != "failed" {
				t.Fatalf("code %d, holds %v: %+v", v.code, v.Holds, v.Checks)
			}
			words := v.Checks[0].Words
			if !slices.ContainsFunc(strings.Split(f.says, "|"), func(s string) bool { return strings.Contains(words, s) }) {
				t.Errorf("it fails with\n\t%s\nand should say %q", words, f.says)
			}
		})
	}
	for _, c := range conformance.Checks() {
		if !proven[c.ID] {
			t.Errorf("no image makes %s fail", c.ID)
		}
	}
}

// A wrapped image without a fault passes the checks that the faults make fail.
func TestAWrappedImageIsRight(t *testing.T) {
	t.Parallel()
	wrapped := broken{more: map[string]string{}}
	for _, name := range []string{"run", "enter", "gc", "stop", "app_add", "app_start", "app_stop", "app_rm", "app_signal"} {
		wrapped.more[name] = `:`
	}
	v := verifyJSON(t, "--level", "3", wrapped.image(t))
	v.holds(t, 3, false)
}

func TestChecksHaveAnIDASentenceAndASection(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conformance.Checks() {
		if seen[c.ID] || strings.Count(c.ID, "/") != 1 || c.Sentence == "" || c.Section == "" || c.Level < 1 || int(c.Level) > conformance.Levels {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
	if n := len(conformance.Select(conformance.Checks(), "add/", "e*t/code")); n < 10 {
		t.Errorf("%d checks selected", n)
	}
	if one := conformance.Select(conformance.Checks(), "honours/umask"); len(one) != 1 { // and not exec-honours/umask
		t.Errorf("%d checks selected by an id", len(one))
	}
}
