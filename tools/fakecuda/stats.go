package fakecuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// Stats are counts of the driver, with the layout of the structure in fake.h.
type Stats struct {
	// Calls counts driver calls, Injected the failures injected, and Violations the calls that broke a rule of the
	// interface.
	Calls, Injected, Violations uint64
	// Used is the bytes in use by the process on all GPUs, Peak their maximum.
	Used, Peak uint64
	// Numbers of live objects.
	Contexts, Segments, Ranges, Mappings, Handles, Modules, Streams, Events uint64
	// Reclaimed counts objects that were destroyed with their context.
	Reclaimed uint64
	Launches  uint64
	// Nanoseconds of device time.
	Nanoseconds uint64
	// NVML counts calls of nvmlInit minus nvmlShutdown.
	NVML uint64
}

// Alive returns the number of objects that the process has not destroyed.
func (s Stats) Alive() uint64 {
	return s.Contexts + s.Segments + s.Ranges + s.Mappings + s.Handles + s.Modules + s.Streams + s.Events
}

// Stats returns the current counts, also after the process has crashed. They are zero if it never loaded the driver.
func (d *Driver) Stats(tb testing.TB) Stats {
	tb.Helper()
	var s Stats
	raw, err := os.ReadFile(d.stats)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(raw) == 0) { // it may not have loaded the driver yet
		return s
	}
	if err == nil {
		err = binary.Read(bytes.NewReader(raw), binary.NativeEndian, &s)
	}
	if err != nil {
		tb.Fatalf("read the fake driver's statistics: %v", err)
	}
	return s
}

// Calls returns the names of all calls so far, in order.
func (d *Driver) Calls(tb testing.TB) []string {
	tb.Helper()
	var names []string
	for _, line := range d.lines(tb) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "violation" {
			names = append(names, name)
		}
	}
	return names
}

// Violations returns the calls that broke a rule, each with the rule.
func (d *Driver) Violations(tb testing.TB) []string {
	tb.Helper()
	var found []string
	for _, line := range d.lines(tb) {
		if strings.HasPrefix(line, "violation ") {
			found = append(found, line)
		}
	}
	return found
}

func (d *Driver) lines(tb testing.TB) []string {
	raw, err := os.ReadFile(d.log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
