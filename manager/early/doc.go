// Package early answers `start` and `delete` as long as that takes no more than the standard
// library. Most calls do: they join a group that has a server, start the server of a new group, or
// find nothing left of a container that its server has deleted. The program that containerd executes,
// the front, consists of this package. It links neither protobuf nor ttrpc, whose initialisation
// would take longer than the answer.
//
//	containerd ── front start ──► group's socket ──► a server listens ──► its address
//	                                  │ none                                ▲
//	                                  ▼                                     │ ready
//	                             bind, start the server program ──► the server's report
//	                                                                        │ an error
//	                                                                        ▼
//	                                                              socket removed, its text
//
// The package owns the parts of `start` and `delete` that both the front and package manager need:
// flags, the forms of stdin and of answers, groups, sockets and their locks, the handover and the report
// of a server. The only errors that it answers with are those that a server reports. If anything
// is unusual, the front becomes the server program, in which package manager does all of the call
// again. docs/adr/0041-a-thin-front.md lists the calls that may be answered here.
package early
