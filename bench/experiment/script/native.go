package script

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// readNative reads the log of the stub libraries (VPROF_STUB_LOG), and a crash report of Python's faulthandler.
func (o *Outcome) readNative(r *hookFolder) error {
	noted, err := os.ReadFile(r.path("missing"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(noted)) {
		kind, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "default" && !seen[line] { // not by another process
			o.NoOpCalls = append(o.NoOpCalls, what)
		}
		seen[line] = true
	}
	faults, err := filepath.Glob(r.path("fault-*"))
	if err != nil {
		return err
	}
	for _, path := range faults {
		said, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if said = bytes.TrimSpace(said); len(said) > 0 {
			o.fault = string(said)
		}
	}
	return nil
}

// crashEvent returns the error event for a process that a signal ended in native code, from the report of Python's
// faulthandler: the Python lines of the stack, and the name of the last stub function without effect that was called.
func (o *Outcome) crashEvent() Event {
	if o.fault == "" {
		return Event{}
	}
	first, _, _ := strings.Cut(o.fault, "\n")
	kind := strings.TrimPrefix(first, "Fatal Python error: ")
	e := Event{Name: "error", Kind: kind, Text: "in native code", Traceback: o.fault}
	if n := len(o.NoOpCalls); n > 0 {
		e.Text += "; the newest of the library functions that were called and did nothing is " + o.NoOpCalls[n-1]
	}
	return e
}
