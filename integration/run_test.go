package integration

import (
	"fmt"
	"testing"
)

func TestRunReturnsTheExitCodeOfTheProgram(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, code := range []int{0, 1, 42, 137, 255} {
			c.run(t, []string{"--rm"}, c.id(), "testprog", "exit", fmt.Sprint(code)).mustExit(t, code)
		}
	})
}
