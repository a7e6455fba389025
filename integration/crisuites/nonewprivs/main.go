// Command nonewprivs prints the user that it runs as. In critest's image it belongs to root and
// is set-user-ID.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("Effective uid:", os.Geteuid()) }
