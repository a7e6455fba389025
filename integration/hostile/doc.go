// Package hostile holds the suite of hostile neighbours: containers that attack the
// runtime which makes them, which makes others beside them, or which executes something
// in them.
// Each test is a class of vulnerabilities of runc, crun, containerd and youki, named by its
// CVEs. It attacks every stage1, in all modes that matter, and runc for comparison. In the
// long form it also attacks an older release that has the hole. There the attack must
// succeed, to show that it is real; against this project's stage1s it must fail.
// The attacks are in the program ./attacker, which prints what it has reached. Changes on
// the host are found by canaries: files that no other process has a reason to touch.
//
// All tests run in an enclosure, so that a successful attack reaches neither the machine's
// processes nor its files.
package hostile
