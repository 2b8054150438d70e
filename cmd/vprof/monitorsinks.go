package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/vprof/vprof/bench/monitor"
)

// sinks are where samples go.
type sinks struct {
	lines    io.Writer
	silent   bool
	csv      *csv.Writer
	json     *json.Encoder
	tb       *monitor.TensorBoard
	exporter *monitor.Exporter
	closers  []io.Closer
}

func openSinks(o *monitorOptions) (s *sinks, err error) {
	s = &sinks{lines: o.app.stdout, silent: o.quiet}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.csv != "" {
		f, err := createSamples("csv", o.csv)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, f)
		s.csv = csv.NewWriter(f)
		if err := s.csv.Write(monitor.Header()); err != nil {
			return s, err
		}
	}
	if o.jsonl != "" {
		f, err := createSamples("jsonl", o.jsonl)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, f)
		s.json = json.NewEncoder(f)
	}
	if o.tb != "" {
		now := time.Now()
		f, err := createSamples("tensorboard", filepath.Join(o.tb, fmt.Sprintf("events.out.tfevents.%d.vprof", now.Unix())))
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, f)
		if s.tb, err = monitor.NewTensorBoard(f, now); err != nil {
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

// write gives samples of one moment to every sink. Each line is complete
// before the next look.
func (s *sinks) write(samples []monitor.Sample) error {
	if s.exporter != nil {
		s.exporter.Set(samples)
	}
	for _, sample := range samples {
		if !s.silent {
			if _, err := fmt.Fprintln(s.lines, sample.Line()); err != nil {
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
		return s.tb.Write(samples)
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
