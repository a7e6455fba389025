package machine

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func probe(t *testing.T) Probe {
	t.Helper()
	dir := os.Getenv("RKT_TEST_KVM")
	if dir == "" {
		t.Skip("RKT_TEST_KVM names no directory with the kernel of machines: make test-kvm")
	}
	temp := t.TempDir()
	return Probe{
		Kernel: filepath.Join(dir, "vmlinux"), Modules: filepath.Join(dir, "modules"), Dir: temp, Children: Children,
		Memo: filepath.Join(temp, "run", "probe"),
	}
}

func TestTheGuestOfAProbeTurnsItselfOff(t *testing.T) {
	p := probe(t)
	if err := p.try(t.Context(), TCG); err != nil {
		t.Error(err)
	}
	p.Kernel = p.Modules
	if err := p.try(t.Context(), TCG); err == nil {
		t.Error("a guest without a kernel turned itself off")
	}
}

func TestKVMIsOnlyUsedIfItRunsAGuest(t *testing.T) {
	p := probe(t)
	found := p.KVM(t.Context())
	if _, err := os.Stat(kvmDevice); err != nil {
		if found == nil || !strings.Contains(found.Error(), "no KVM") {
			t.Errorf("without %s the probe found %v", kvmDevice, found)
		}
		return
	}
	again := p.KVM(t.Context()) // of the memo
	if found == nil && again != nil || found != nil && (again == nil || again.Error() != found.Error()) {
		t.Errorf("the probe found %v, and then %v", found, again)
	}
	if found != nil && !strings.HasPrefix(found.Error(), "KVM runs no guests here: ") {
		t.Errorf("the probe itself has failed: %v", found)
	}
	t.Logf("KVM: %v", found)
}

func TestAProbeIsRememberedUntilTheHostOrAFileChanges(t *testing.T) {
	dir := t.TempDir()
	kernel := filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(kernel, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(qemu); err != nil {
		t.Skip(err)
	}
	p := Probe{Kernel: kernel, Memo: filepath.Join(dir, "run", "probe")}
	tries := 0
	ask := func(ctx context.Context, outcome error) (string, error) {
		return p.remembered(ctx, func(context.Context) error { tries++; return outcome })
	}
	expect := func(what, want string, wantTries int, outcome error) {
		t.Helper()
		got, err := ask(t.Context(), outcome)
		if err != nil || got != want || tries != wantTries {
			t.Errorf("%s: %q, %v after %d tries, not %q after %d", what, got, err, tries, want, wantTries)
		}
	}
	expect("first", "broken", 1, guestError("broken"))
	expect("a failure is remembered", "broken", 1, nil)
	if err := os.WriteFile(kernel, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("another kernel", "", 2, nil)
	expect("a success is remembered", "", 2, errors.New("broken"))
	memo, err := os.ReadFile(p.Memo)
	if err != nil {
		t.Fatal(err)
	}
	for i, changed := range []string{
		strings.Replace(string(memo), `"boot":"`, `"boot":"0`, 1), strings.Replace(string(memo), `"qemu":"`, `"qemu":"0`, 1), "{", "",
	} {
		if err := os.WriteFile(p.Memo, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(changed, "", 3+i, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := os.Remove(p.Memo); err != nil {
		t.Fatal(err)
	}
	_, err = p.remembered(ctx, func(context.Context) error { cancel(); return errors.New("interrupted") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted probe: %v", err)
	}
	expect("after an interrupted probe", "", 7, nil)
}

// What one pod has met decides for no other pod.
func TestAProbeRemembersOnlyWhatAGuestHasShown(t *testing.T) {
	if _, err := os.Stat(qemu); err != nil {
		t.Skip(err)
	}
	p := Probe{Kernel: qemu, Memo: filepath.Join(t.TempDir(), "probe")}
	expect := func(outcome error, want string, fails bool) {
		t.Helper()
		got, err := p.remembered(t.Context(), func(context.Context) error { return outcome })
		if got != want || (err != nil) != fails {
			t.Errorf("after %v: %q, %v", outcome, got, err)
		}
	}
	expect(errors.New("no space left"), "", true)
	expect(errProbeHangs, errProbeHangs.Error(), false)
	expect(nil, errProbeHangs.Error(), false)
	text, err := os.ReadFile(p.Memo)
	if err != nil {
		t.Fatal(err)
	}
	var f finding
	if err := json.Unmarshal(text, &f); err != nil || time.Until(f.Until) > hungFor {
		t.Fatalf("%s: %v", text, err)
	}
	f.Until = time.Now()
	if text, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Memo, text, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(guestError("broken"), "broken", false) // it was tried again
}

// QEMU stops a guest whose next instruction KVM cannot execute, and would wait forever.
func TestAMachineEndsWhenQEMUStopsItsGuest(t *testing.T) {
	m, end, err := probe(t).boot(t.Context(), TCG)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	_ = m.(*machine).qmp.execute(t.Context(), "stop", nil, nil) // QEMU may be killed before it answers
	wait.For(t, "the machine ends", m.Done())
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "cannot execute the guest any more") {
		t.Errorf("the machine has ended with %v", err)
	}
}

func TestTheConfigurationChoosesTheAccelerator(t *testing.T) {
	if _, err := os.Stat(qemu); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat(kvmDevice); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	p := Probe{Kernel: qemu, Memo: filepath.Join(dir, "probe")}
	choose := func(word, want Accel, wantWhy, wantErr string) {
		t.Helper()
		accel, why, err := p.Choose(t.Context(), word)
		if accel != want || fmt.Sprint(why) != wantWhy || fmt.Sprint(err) != wantErr {
			t.Errorf("%s stands for %s: %v, %v", word, accel, why, err)
		}
	}
	for _, works := range []bool{false, true} {
		_, err := p.remembered(t.Context(), func(context.Context) error {
			if works {
				return nil
			}
			return guestError("broken")
		})
		if err != nil {
			t.Fatal(err)
		}
		choose(TCG, TCG, "<nil>", "<nil>")
		choose("hvf", "", "<nil>", `there is no accelerator "hvf": it is kvm, tcg or auto`)
		if works {
			choose(KVM, KVM, "<nil>", "<nil>")
			choose(Auto, KVM, "<nil>", "<nil>")
		} else {
			choose(KVM, KVM, "<nil>", "KVM runs no guests here: broken")
			choose(Auto, TCG, "KVM runs no guests here: broken", "<nil>")
		}
		if err := os.Remove(p.Memo); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheProgramOfAProbeIsOne(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(poweroff()))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Progs) != 1 || f.Entry < f.Progs[0].Vaddr || f.Entry >= f.Progs[0].Vaddr+f.Progs[0].Memsz || f.Machine != elf.EM_X86_64 {
		t.Errorf("the program is %+v", f)
	}
}
