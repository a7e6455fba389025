// Package early answers `start` and `delete` as long as that takes no more than the standard
// library. Most calls do: they join a group that has a server, or find nothing left of a
// container that its server has deleted. The process ends before protobuf and the other
// packages of the program are initialised, which would take longer than the answer.
//
// The package owns the parts of `start` and `delete` that both the early answer and package
// manager need: flags, the forms of stdin and of answers, groups, sockets and their locks. It
// never answers with an error. If anything is unusual it answers nothing, and package manager
// does all of the call again.
// docs/adr/0034-early-answers.md lists the calls that may be answered here.
package early
