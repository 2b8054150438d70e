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

// Stats are the counts of a driver: the structure in fake.h.
type Stats struct {
	// Calls of the driver, Injected failures of them, and Violations of the interface's rules.
	Calls, Injected, Violations uint64
	// Used is the bytes of the GPUs held by the process, Peak the highest that it was.
	Used, Peak uint64
	// Objects that are not destroyed.
	Contexts, Segments, Ranges, Mappings, Handles, Modules, Streams, Events uint64
	// Reclaimed things were still alive when their context ended.
	Reclaimed uint64
	Launches  uint64
	// Nanoseconds of the device's clock.
	Nanoseconds uint64
	// NVML is nvmlInit without nvmlShutdown.
	NVML uint64
}

// Alive returns how many things the process still has from the driver.
func (s Stats) Alive() uint64 {
	return s.Contexts + s.Segments + s.Ranges + s.Mappings + s.Handles + s.Modules + s.Streams + s.Events
}

// Stats reads the counts. They are up to date, however a process ended; zero if it never loaded the driver.
func (d *Driver) Stats(tb testing.TB) Stats {
	tb.Helper()
	var s Stats
	raw, err := os.ReadFile(d.stats)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(raw) == 0) { // or is about to
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

// Calls returns the names of all calls so far.
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

// Violations returns the calls that broke a rule, and which.
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
