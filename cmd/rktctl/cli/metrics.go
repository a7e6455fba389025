package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/metrics"
)

// metricsJob has the options of the verb metrics.
type metricsJob struct {
	env                     *Env
	listen, textfile, state string
	spans                   string
	every                   time.Duration
	once                    bool
}

func newMetrics(e *Env) *cobra.Command {
	cmd := verb("metrics", "metrics [OPTIONS]", "count what pods do, for Prometheus", none)
	j := &metricsJob{env: e}
	flags := cmd.Flags()
	flags.StringVar(&j.listen, "listen", "", "serve the metrics by HTTP at `ADDRESS`: HOST:PORT, or unix:PATH")
	flags.StringVar(&j.textfile, "textfile", "", "write the metrics to `PATH`, for the textfile collector of node_exporter")
	flags.DurationVar(&j.every, "every", 15*time.Second, "collect once in this `TIME`, at least a second")
	flags.StringVar(&j.spans, "spans", "", "send the spans of calls to `TARGET`: http://HOST:PORT/v1/traces of an OpenTelemetry collector, or a file")
	flags.BoolVar(&j.once, "once", false, "collect once, and end")
	flags.StringVar(&j.state, "state", "", "keep the counters in `FILE`; if it is not given, in metrics/counters.json of the data directory")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case j.every < time.Second:
			return errUsage(cmd, "--every: a collection takes up to a second")
		case j.once && (j.textfile == "" && j.spans == "" || j.listen != ""):
			return errUsage(cmd, "--once needs --textfile or --spans, and no --listen")
		}
		if j.state == "" {
			j.state = filepath.Join(dataDir(e), "metrics", "counters.json")
		}
		return j.run(cmd.Context())
	}
	return cmd
}

// run collects once, or until ctx ends. Without an option it prints the metrics and keeps
// nothing.
func (j *metricsJob) run(ctx context.Context) (err error) {
	show := j.listen == "" && j.textfile == "" && j.spans == ""
	var spans *metrics.Exporter
	if j.spans != "" {
		if spans, err = metrics.NewExporter(j.spans); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	c, err := metrics.New(dataDir(j.env), j.state, !show, spans)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var s metrics.Server
	if err := j.collect(ctx, c, &s); err != nil && (j.once || !errors.Is(err, errSpans)) {
		return fmt.Errorf("metrics: %w", err)
	} else if err != nil {
		j.report(err)
	}
	if show {
		return c.Write(j.env.Stdout)
	}
	if j.once {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	served := make(chan error, 1)
	if j.listen == "" {
		served <- nil
	} else {
		l, err := metrics.Listen(j.listen)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		go func() {
			err := s.Serve(ctx, l)
			stop(err)
			served <- err
		}()
	}
	j.repeat(ctx, c, &s)
	return <-served
}

// repeat collects until ctx ends. A collection that fails is reported, and the next one may
// succeed.
func (j *metricsJob) repeat(ctx context.Context, c *metrics.Collector, s *metrics.Server) {
	tick := time.NewTicker(j.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := j.collect(ctx, c, s); err != nil && ctx.Err() == nil {
			j.report(err)
		}
	}
}

func (j *metricsJob) report(err error) { fmt.Fprintf(j.env.Stderr, "rktctl metrics: %v\n", err) }

// errSpans says that spans could not be sent.
var errSpans = errors.New("spans")

// collect collects once, passes the metrics on, and sends the spans.
func (j *metricsJob) collect(ctx context.Context, c *metrics.Collector, s *metrics.Server) error {
	if err := c.Collect(); err != nil {
		return err
	}
	if err := j.pass(c, s); err != nil || j.spans == "" {
		return err
	}
	if err := c.SendSpans(ctx); err != nil {
		return fmt.Errorf("%w to %s: %w", errSpans, j.spans, err)
	}
	return nil
}

// pass passes the metrics on.
func (j *metricsJob) pass(c *metrics.Collector, s *metrics.Server) error {
	if j.textfile == "" {
		return s.Take(c)
	}
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		return err
	}
	return errors.Join(s.Take(c), metrics.Replace(j.textfile, b.Bytes(), 0o644))
}
