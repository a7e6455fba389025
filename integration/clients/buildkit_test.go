package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A RUN sees the files, the user, the directory and the environment that the instructions
// before it have made.
func TestRUN(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		file := b.build(t, `FROM BASE AS build
ENV A=b
RUN echo "$A $(id -u) $PWD $(hostname)" >/first
WORKDIR /work
RUN chown games /work
USER games
RUN echo "$(id -u):$(id -g) $PWD $(cat /first)" >second
RUN <<END
seq 100000 | tail -n 1 >>second
END
RUN ["/bin/sh", "-c", "ls -ln second | cut -d ' ' -f 1,3- | cut -c 1-10 >third"]
FROM scratch
COPY --from=build /first /work/second /work/third /
`)
		for name, want := range map[string]string{
			"first": "b 0 / buildkitsandbox\n", "second": "5:60 /work b 0 / buildkitsandbox\n100000\n", "third": "-rw-r--r--\n",
		} {
			if got := file(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
}

// The client learns the exit code of a RUN that fails, or why a program could not be executed.
// The build ends there, and a build that has been corrected goes on after the steps that have
// succeeded.
func TestAFailingRUN(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		const logged = "RUN --mount=type=cache,target=/c "
		const first = "FROM BASE\n" + logged + "echo once >>/c/log\n"
		for program, want := range map[string]string{
			"RUN echo said; exit 42":               `process "/bin/sh -c echo said; exit 42" did not complete successfully: exit code: 42`,
			"RUN sh -c 'kill -KILL $$' || exit $?": "exit code: 137",
			"RUN sleep 1000 & exit 3":              "exit code: 3",
			"RUN yes | head -c 300000 >&2; exit 5": "exit code: 5",
			"RUN no-such-program":                  "exit code: 127",
			`RUN ["no-such-program"]`:              "executable file not found in $PATH",
			`RUN ["/etc/passwd"]`:                  "permission denied",
			"SHELL [\"/bin/no\"]\nRUN true":        "no such file or directory",
		} {
			r := b.call(t, buildArgs(t, first+program+"\n"+logged+"echo never >>/c/log\n")...)
			if r.code != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: exit code %d, want %q in\n%s", program, r.code, want, r.stderr)
			}
		}
		file := b.build(t, first+logged+"cp /c/log /log\nFROM scratch\nCOPY --from=0 /log /\n")
		if got := file("log"); got != "once\n" {
			t.Errorf("the log is %q", got)
		}
	})
}

// Stages that do not need each other run at the same time: each waits for all others.
func TestParallelStages(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		const stages = 8
		var text strings.Builder
		for i := range stages {
			fmt.Fprintf(&text, `FROM BASE AS s%[1]d
RUN --mount=type=cache,id=meeting,target=/meeting \
    touch /meeting/%[1]d; \
    for i in $(seq 600); do [ $(ls /meeting | wc -l) -eq %[2]d ] && echo %[1]d >/s%[1]d && exit 0; sleep 0.1; done; exit 1
`, i, stages)
		}
		text.WriteString("FROM scratch\n")
		for i := range stages {
			fmt.Fprintf(&text, "COPY --from=s%[1]d /s%[1]d /\n", i)
		}
		file := b.build(t, text.String())
		for i := range stages {
			if got := file(fmt.Sprint("s", i)); got != fmt.Sprintln(i) {
				t.Errorf("stage %d wrote %q", i, got)
			}
		}
	})
}

// What a build leaves in a cache mount is there in the next build, and not in the result.
func TestCacheMounts(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		for round := 1; round <= 3; round++ {
			file := b.build(t, `FROM BASE AS build
ARG ROUND
RUN --mount=type=cache,target=/cache echo $ROUND >>/cache/rounds; cat /cache/rounds >/rounds
RUN --mount=type=cache,target=/cache,id=other ls -A /cache >/other
RUN --mount=type=cache,target=/cache,readonly touch /cache/more 2>/refused; ls -A /cache >/kept
RUN ls -A /cache >/left 2>/dev/null; true
FROM scratch
COPY --from=build /rounds /other /refused /kept /left /
`, "--opt", fmt.Sprint("build-arg:ROUND=", round))
			if got, want := file("rounds"), []string{"", "1\n", "1\n2\n", "1\n2\n3\n"}[round]; got != want {
				t.Errorf("build %d: the cache has %q, want %q", round, got, want)
			}
			if file("other") != "" || file("kept") != "rounds\n" || file("left") != "" || !strings.Contains(file("refused"), "Read-only") {
				t.Errorf("build %d: another cache has %q, the read-only one %q, the result %q; the write was refused by %q",
					round, file("other"), file("kept"), file("left"), file("refused"))
			}
		}
	})
}

// A secret is there for the RUN that mounts it, and neither in the result nor in any file of
// BuildKit, containerd and the shim.
func TestSecrets(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		const secret = "a-word-that-nobody-else-uses"
		source := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(source, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "image.tar")
		r := b.call(t, buildArgs(t, `FROM BASE
RUN --mount=type=secret,id=token rev </run/secrets/token >/seen && stat -c '%a %u' /run/secrets/token >>/seen
RUN --mount=type=secret,id=token,env=TOKEN echo $TOKEN | rev >>/seen
USER games
RUN --mount=type=secret,id=token,target=/tmp/token,uid=5,mode=0400 [ "$(cat /tmp/token | wc -c)" = 28 ]
RUN ! cat /run/secrets/token /tmp/token 2>/dev/null && [ -z "$TOKEN" ]
`, "--secret", "id=token,src="+source, "--output", "type=oci,compression=uncompressed,force-compression=true,dest="+to)...)
		if r.code != 0 {
			t.Fatalf("the build fails:\n%s", r.stderr)
		}
		text, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if seen := reversed(secret); !bytes.Contains(text, []byte(seen+"400 0\n"+seen+"\n")) {
			t.Errorf("the RUNs have not seen the secret")
		}
		if bytes.Contains(text, []byte(secret)) {
			t.Error("the secret is in the result")
		}
		if found := filesWith(t, b.Dir(), secret); len(found) > 0 {
			t.Errorf("the secret is in %q", found)
		}
	})
}

func reversed(s string) string {
	out := []byte(s)
	for i := range out {
		out[i] = s[len(s)-1-i]
	}
	return string(out)
}

// filesWith lists the files below a directory that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// With the network none a RUN has a loopback interface of its own. With host it has the
// machine's interfaces.
func TestNetworks(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served\n") })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { server.Close() })
		fetch := "wget -q -O - http://" + listener.Addr().String() + "/"
		file := b.build(t, `FROM BASE AS build
RUN --network=none readlink /proc/self/ns/net >/none; ls /sys/class/net >>/none; ping -c 1 127.0.0.1 >/dev/null && echo alive >>/none; `+fetch+` >>/none 2>/dev/null || echo unreachable >>/none
RUN --network=host readlink /proc/self/ns/net >/host; `+fetch+` >>/host
RUN --network=none readlink /proc/self/ns/net >/other
FROM scratch
COPY --from=build /none /host /other /
`, "--allow", "network.host")
		own, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		if got := file("host"); got != own+"\nserved\n" {
			t.Errorf("with the network host: %q", got)
		}
		id, rest, _ := strings.Cut(file("none"), "\n")
		if id == own || rest != "lo\nalive\nunreachable\n" {
			t.Errorf("with the network none: %q in %s; the machine's is %s", rest, id, own)
		}
		if r := b.call(t, buildArgs(t, "FROM BASE\nRUN --network=host true\n")...); r.code != 1 || !strings.Contains(r.stderr, "network.host") {
			t.Errorf("the network host without its entitlement: exit code %d\n%s", r.code, r.stderr)
		}
	})
}

// If the client ends, its RUN ends, and nothing is left of it.
func TestABuildThatIsLeft(t *testing.T) {
	eachBuilder(t, func(t *testing.T, b *builder) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := b.command(ctx, buildArgs(t, "FROM BASE\nRUN trap '' TERM; sleep 1000 & sleep 1000\n")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait.ObserveWithin(t, patience, "the RUN has begun", func() (bool, string) {
			out, err := b.Ctr(ctx, "task", "list").CombinedOutput()
			return err == nil && strings.Contains(string(out), "RUNNING"), string(out)
		})
		if out, err := b.Ctr(ctx, "container", "list").CombinedOutput(); err != nil || strings.Count(string(out), b.runtime) != 1 {
			t.Errorf("not one container of %s: %v\n%s", b.runtime, err, out)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("buildctl ends with 0")
		}
		wait.ObserveWithin(t, patience, "the RUN has ended", func() (bool, string) {
			left, err := b.containers(t)
			return err == nil && left == 0, fmt.Sprint(left, err)
		})
	})
}
