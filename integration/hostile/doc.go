// Package hostile tests containers that attack the runtime while it makes them, makes other
// containers beside them, or executes a program in them.
//
// Each test is a class of vulnerabilities of runc, crun, containerd and youki, named by its
// CVEs. It attacks every stage1, in all relevant modes, and runc for comparison. In the
// long form it also attacks an older release that has the hole. There the attack must
// succeed, to show that it is real; against this project's stage1s it must fail. The
// program ./attacker makes the attacks and prints what it has reached. Canaries show
// changes on the host: they are files that no other process has a reason to touch.
//
// One attack has no vulnerability of the past as its model: containers in every situation (with and without a
// seccomp profile, as root, as a user and in a user namespace, alone and in a pod; first processes, execs and debug apps)
// try a fixed list of ways out. A way that is open there and closed in a container of runc's
// fails the test. The long form attacks runc in the same run; the short form has its verdicts in testdata/runc.json, which
// the long form writes.
//
// All tests run in an enclosure, so that a successful attack reaches neither the machine's
// processes nor its files.
package hostile
