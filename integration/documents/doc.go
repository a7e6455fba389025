// Package documents executes the commands of documents and compares their output with the text
// of the document. A page of docs/ that has commands is a test here.
//
// # Blocks
//
// In a block of the language console, a line that begins with "# " or "$ " is a command, and
// lines that begin with "> " continue it. The other lines are the output that the command
// prints, to stdout or stderr. A block of the language sh has a command in each line, unless a
// backslash continues the line; each must succeed, and its output is not compared. All commands
// of a page are executed in one shell, so variables and the working directory stay.
//
// # Values
//
// Some values differ from run to run. Any value of the same kind matches: a UUID, a digest,
// which a document may cut short with "…", another hexadecimal number of eight digits or more, a date or time, a duration such as 12ms
// or 4m, a size such as 1.5 MiB, and a decimal number of at least four digits, such as a
// process id, or with a fraction. The widths of the columns of a table may differ, and
// ctr's warnings of deprecations do not count. In the text of a document, "…"
// matches the rest of a word or line, and a line that is only "…" matches any lines.
//
// # Directives
//
// HTML comments, which readers do not see, say what blocks cannot:
//
//	<!-- test: not run: REASON -->      the next block is not executed. The test of the
//	                                       page counts these.
//	<!-- test: file PATH -->            the next block is the content of this file.
//	<!-- test: first                    these commands are executed as well, and must
//	COMMANDS                               succeed. They break a node, for instance, before
//	-->                                    the document's commands show that it is broken.
//
// # The node
//
// Each page is executed on a node of its own: an enclosure in which `make install` has installed
// the runtime below /usr/local, beside containerd and its clients, with containerd's usual paths.
// A proxy serves docker.io/library/busybox:latest and the pause image to clients that pull them.
// systemctl is a script that starts, stops and restarts containerd. At its end, a page
// must have removed the containers and pods that it has made.
package documents
