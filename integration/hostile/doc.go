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
// All tests run in an enclosure, so that a successful attack reaches neither the machine's
// processes nor its files.
package hostile
