//go:build !race

package fork

// forgets is false in programs whose children cannot unmap their parent's memory.
const forgets = true
