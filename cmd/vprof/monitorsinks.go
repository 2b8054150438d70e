package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/vprof/vprof/bench/observe/monitor"
)

// sinks are where samples go.
type sinks struct {
	stdout io.Writer
	// silent leaves the lines on standard output out.
	silent   bool
	csv      *csv.Writer
	json     *json.Encoder
	tb       *monitor.TensorBoard
	exporter *monitor.Exporter
	// history is what the screen shows; nil without one.
	history *monitor.History
	closers []io.Closer
}

func openSinks(o *monitorOptions) (s *sinks, err error) {
	s = &sinks{stdout: o.app.stdout, silent: o.quiet}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.csv != "" {
		to, err := s.create("csv", o.csv)
		if err != nil {
			return s, err
		}
		s.csv = csv.NewWriter(to)
		if err := s.csv.Write(monitor.Header()); err != nil {
			return s, err
		}
	}
	if o.jsonl != "" {
		to, err := s.create("jsonl", o.jsonl)
		if err != nil {
			return s, err
		}
		s.json = json.NewEncoder(to)
	}
	if o.tb != "" {
		now := time.Now()
		if err := os.MkdirAll(o.tb, 0o755); err != nil {
			return s, usagef("--tensorboard: %w", err)
		}
		to, err := s.create("tensorboard", filepath.Join(o.tb, fmt.Sprintf("events.out.tfevents.%d.vprof", now.Unix())))
		if err != nil {
			return s, err
		}
		if s.tb, err = monitor.NewTensorBoard(to, now); err != nil {
			return s, err
		}
	}
	if o.listen != "" {
		s.exporter = &monitor.Exporter{}
		l, err := serve(o.listen, s.exporter)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, l)
		fmt.Fprintf(o.app.stderr, "vprof: metrics at http://%s/metrics\n", l.Addr())
	}
	return s, nil
}

// create makes a file for samples; - is standard output, which is then theirs
// alone.
func (s *sinks) create(flag, path string) (io.Writer, error) {
	if path == "-" && flag != "tensorboard" {
		s.silent = true
		return s.stdout, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, usagef("--%s: %w", flag, err)
	}
	s.closers = append(s.closers, f)
	return f, nil
}

// write gives a look to every sink. Each line is complete before the next one.
func (s *sinks) write(look monitor.Look) error {
	if s.exporter != nil {
		s.exporter.Set(look.Samples)
	}
	if s.history != nil {
		s.history.Add(look)
	}
	for _, sample := range look.Samples {
		if !s.silent {
			if _, err := fmt.Fprintln(s.stdout, sample.Line()); err != nil {
				return err
			}
		}
		if s.csv != nil {
			if err := s.csv.Write(sample.Record()); err != nil {
				return err
			}
		}
		if s.json != nil {
			if err := s.json.Encode(sample); err != nil {
				return err
			}
		}
	}
	if s.csv != nil {
		s.csv.Flush()
		if err := s.csv.Error(); err != nil {
			return err
		}
	}
	if s.tb != nil {
		return s.tb.Write(look.Samples)
	}
	return nil
}

func (s *sinks) close() error {
	var err error
	for _, c := range s.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// serve answers Prometheus until the listener is closed.
func serve(address string, e *monitor.Exporter) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usagef("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", e)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // ends when the listener is closed
	return l, nil
}
