package container

import "os"

// Init is what the process that was made for an app or an exec does. It never
// returns: it becomes the program, or ends.
//
// It is called first thing by main, whose goroutine is locked to its thread.
// Descriptors: 0 to 2 are the app's stdio, 3 is the supervisor's socket, 4
// holds Prepared.Config, 5 and above are Prepared.Files.
func Init() { os.Exit(1) }
