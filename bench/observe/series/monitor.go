package series

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/internal/jsonkeys"
)

// readMonitor parses the output of vprof monitor --csv.
func readMonitor(data []byte) (*log, error) {
	j := &log{}
	return j, j.rows(data, func(cell map[string]string) error {
		if cell["error"] != "" {
			return nil // the GPU could not be read
		}
		s := monitor.Sample{Name: cell["name"], UUID: cell["uuid"]}
		var err error
		if s.Time, err = time.Parse(time.RFC3339Nano, cell["time"]); err != nil {
			return fmt.Errorf("time: %q: need a time like 2026-01-31T12:00:00Z", cell["time"])
		}
		if s.GPU, err = strconv.Atoi(cell["gpu"]); err != nil {
			return fmt.Errorf("gpu: %q is not a number; need the index of a GPU, like 0", cell["gpu"])
		}
		for column, to := range map[string]*int64{
			"total_bytes": &s.Total, "used_bytes": &s.Used,
			"highest_bytes": &s.Highest,
		} {
			if *to, err = strconv.ParseInt(cell[column], 10, 64); err != nil && cell[column] != "" ||
				cell["used_bytes"] == "" {
				return fmt.Errorf("%s: %q is not a number of bytes", column, cell[column])
			}
		}
		if cell["watched_bytes"] != "" {
			watched, err := strconv.ParseInt(cell["watched_bytes"], 10, 64)
			if err != nil {
				return fmt.Errorf("watched_bytes: %q is not a number of bytes", cell["watched_bytes"])
			}
			s.Watched = &watched
		}
		return j.add(s)
	})
}

// readJSONLines parses the output of vprof monitor --jsonl.
func readJSONLines(data []byte) (*log, error) {
	j := &log{}
	for line := range bytes.Lines(data) {
		j.line++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var s struct {
			monitor.Sample
			Used *int64 `json:"used_bytes"` // tells a missing key from none in use
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return j, err
		}
		if err := jsonkeys.CheckUnique(line); err != nil {
			return j, err
		}
		if s.Error != "" {
			continue
		}
		if s.Used == nil {
			return j, errors.New("used_bytes: missing; need the GPU's memory in use, in bytes")
		}
		s.Sample.Used = *s.Used
		if err := j.add(s.Sample); err != nil {
			return j, err
		}
	}
	return j, nil
}

// maxBytes is more memory than any GPU has.
const maxBytes = 1 << 46

func (j *log) add(s monitor.Sample) error {
	for _, bytes := range []int64{s.Total, s.Used, s.Highest} {
		if bytes < 0 || bytes > maxBytes {
			return fmt.Errorf("%d is not a possible number of bytes; need 0 to 2^50", bytes)
		}
	}
	switch {
	case s.Total > 0 && s.Used > s.Total:
		return fmt.Errorf("used_bytes: %d is more than total_bytes, %d; correct one of them", s.Used, s.Total)
	case s.Watched != nil && (*s.Watched < -1 || *s.Watched > maxBytes): // -1: the driver does not tell
		return fmt.Errorf("watched_bytes: %d: need a number of bytes, or -1 if it is unknown", *s.Watched)
	}
	seen := map[int]bool{}
	for _, p := range s.Processes {
		if p.PID < 1 || seen[p.PID] || p.Used < -1 || p.Used > maxBytes {
			return fmt.Errorf("processes: process %[2]d has %[1]d bytes; list each process once, with its bytes, or "+
				"-1 if they are unknown", p.Used, p.PID)
		}
		seen[p.PID] = true
	}
	b, err := j.gpu(strconv.Itoa(s.GPU)+s.UUID, strings.TrimSpace(fmt.Sprint(s.GPU, " ", s.Name)), s.Name)
	if err != nil {
		return err
	}
	b.total = max(b.total, s.Total)
	m := unknownMoment()
	m.when, m.used, m.highest = s.Time, float64(s.Used), float64(s.Highest)
	if s.Watched != nil {
		m.watched = min(float64(*s.Watched), m.used)
	} else {
		m.processes, m.names = map[int]float64{}, map[int]string{}
		for _, p := range s.Processes {
			if p.Used >= 0 && p.Used <= maxBytes {
				m.processes[p.PID], m.names[p.PID] = min(float64(p.Used), m.used), p.Name
			}
		}
	}
	b.moments = append(b.moments, m)
	return nil
}
