// Package hostile holds the suite of hostile neighbours: containers that attack the
// runtime which makes them, which makes others beside them, or which executes something
// in them.
//
// Each test is a class of what has gone wrong in runc, crun, containerd and youki, by
// its CVEs, and each is tried in all modes that matter against every stage1, against
// runc as the oracle, and, in the long form, against an older release that has the hole,
// to show that the attack is real: there it must win. Against a stage1 of ours it must
// not.
//
// The attacks are in the program ./attacker. It says what it got; what was changed on
// the host is found by looking at canaries, files that nobody has a reason to touch.
//
// Everything happens in an enclosure, so that what wins meets neither the machine's
// processes nor its files.
package hostile
