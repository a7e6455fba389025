package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheErrorOfAPanicHasItsReason(t *testing.T) {
	console := func(text string) string {
		t.Helper()
		c, err := newConsole(filepath.Join(t.TempDir(), "console"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.input.WriteString(text); err != nil {
			t.Fatal(err)
		}
		c.input.Close() // the machine has ended
		<-c.done
		c.close()
		return fmt.Sprint(c.last())
	}
	registers := strings.Repeat("[    1.0] RAX: 0000000000000000\r\n", 200)
	got := console("[    1.0] Kernel panic - not syncing: sysrq triggered crash\r\n" + registers)
	if !strings.Contains(got, "Kernel panic - not syncing: sysrq triggered crash; ...; ") || len(got) > maxLast+maxLast/2 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := console("booting\r\n" + registers); strings.Contains(got, "...") || !strings.HasSuffix(got, "RAX: 0000000000000000") {
		t.Errorf("without a panic: %s", got)
	}
	if got := console("Kernel panic - not syncing: x\r\nend"); !strings.HasSuffix(got, "ends with: Kernel panic - not syncing: x; end") {
		t.Errorf("a short one: %s", got)
	}
	if got := console(strings.Repeat("Kernel panic", 10_000)); len(got) > 2*maxLast {
		t.Errorf("a hostile one has %d bytes", len(got))
	}
	if got := console(""); got != "<nil>" {
		t.Errorf("an empty one: %s", got)
	}
}
