// Command nonewprivs prints the user as whom it runs. In critest's image it belongs to root and
// is set-user-ID.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("Effective uid:", os.Geteuid()) }
