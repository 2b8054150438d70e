//go:build !js

package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/internal/printable"
)

// sinks are the outputs of the monitor: terminal, files, Prometheus.
type sinks struct {
	stdout io.Writer
	// silent turns off the lines on standard output.
	silent   bool
	csv      *csv.Writer
	json     *json.Encoder
	exporter *monitor.Exporter
	// history is the data of the screen; nil without one.
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
		header := strings.Join(monitor.Header(), ",") + "\n"
		to, continued, err := s.openLog("csv", o.csv, header)
		if err != nil {
			return s, err
		}
		s.csv = csv.NewWriter(to)
		if !continued {
			if err := s.csv.Write(monitor.Header()); err != nil {
				return s, err
			}
		}
	}
	if o.jsonl != "" {
		to, _, err := s.openLog("jsonl", o.jsonl, `{"time":`)
		if err != nil {
			return s, err
		}
		s.json = json.NewEncoder(to)
	}
	if o.listen != "" {
		s.exporter = &monitor.Exporter{}
		l, err := serve(o.listen, s.exporter)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, l)
		printable.Fprintf(o.app.stderr, "vprof: metrics at http://%s/metrics\n", l.Addr())
		if !loopback(l.Addr()) {
			fmt.Fprintln(o.app.stderr, "vprof: warning: anyone who can reach this address can read them, with the "+
				"names of programs; --listen localhost:PORT serves this machine only")
		}
	}
	return s, nil
}

// openLog opens a file to append samples to; - is standard output without the screen's lines. It appends to an existing
// log, and refuses files that do not begin like a log or end in the middle of a line.
func (s *sinks) openLog(flag, path, begins string) (to io.Writer, continued bool, err error) {
	if path == "-" {
		s.silent = true
		return s.stdout, false, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	info, unknown := f.Stat()
	if err == nil && (unknown != nil || !info.Mode().IsRegular()) { // a pipe or a device has no past
		f.Close()
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, false, usagef("--%s: %w", flag, err)
	}
	s.closers = append(s.closers, f)
	if continued, err = isLog(f, begins); err != nil {
		return nil, false, usagef("--%s: %s %w; name another file", flag, path, err)
	}
	return f, continued, nil
}

// isLog reports whether a file is a log to append to; an empty file is not.
func isLog(f *os.File, begins string) (bool, error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false, err
	}
	head, last := make([]byte, len(begins)), make([]byte, 1)
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != begins {
		return false, errors.New("is not a log of vprof monitor in this format")
	}
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] != '\n' {
		return false, errors.New("ends in the middle of a line")
	}
	return true, nil
}

// write writes a round of samples to every output.
func (s *sinks) write(round monitor.Round) error {
	if s.exporter != nil {
		s.exporter.Set(round.Samples)
	}
	if s.history != nil {
		s.history.Add(round)
	}
	for _, sample := range round.Samples {
		if !s.silent {
			if _, err := printable.Fprintf(s.stdout, "%s\n", sample.Line()); err != nil {
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
		return s.csv.Error()
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

// serve answers Prometheus until the listener is closed, only on this machine unless the address names more.
func serve(address string, e *monitor.Exporter) (net.Listener, error) {
	if strings.HasPrefix(address, ":") {
		address = "localhost" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usagef("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e)
	var handler http.Handler = mux
	if loopback(l.Addr()) {
		handler = refuseRemoteHosts(mux)
	}
	const soon = 10 * time.Second // a scrape takes milliseconds
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: soon, ReadTimeout: soon, WriteTimeout: soon, IdleTimeout: 6 * soon,
		MaxHeaderBytes: 16 << 10,
	}
	go func() { _ = server.Serve(l) }() // ends when the listener is closed
	return l, nil
}

// loopback reports whether an address can be reached only from this machine.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// refuseRemoteHosts refuses requests for another host: a web page whose name resolves to this machine
// (DNS rebinding) could read the answers.
func refuseRemoteHosts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "vprof answers requests for localhost; --listen 0.0.0.0:PORT opens it to others",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
