package device

import "strings"

// An UnusableError says that a GPU that was asked for cannot be used, and what
// can be done about it. It is about the machine, not about the program: no
// driver, no such device, a board that others have to themselves.
type UnusableError struct {
	// Device is what was asked for: "cuda:0", or "cuda" if it is about all.
	Device string
	// Reason says what is in the way, and Remedy what to do, each in a clause;
	// Remedy may be empty.
	Reason, Remedy string
	// Err is what the driver said; nil if it was not asked.
	Err error
}

func (e *UnusableError) Error() string {
	var b strings.Builder
	b.WriteString(e.Device + ": " + e.Reason)
	if e.Err != nil {
		b.WriteString(" (" + e.Err.Error() + ")")
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

func (e *UnusableError) Unwrap() error { return e.Err }

// A DefectError says that a GPU does its work and does it wrong: memory that
// does not keep what was written, or arithmetic that comes to another result
// than the CPU's.
type DefectError struct {
	// Device is which, "cuda:0".
	Device string
	// Finding is what came out wrong.
	Finding string
}

func (e *DefectError) Error() string {
	return e.Device + ": the GPU gives wrong results: " + e.Finding +
		"; look for memory errors (nvidia-smi -q -d ECC) and Xids (dmesg | grep -i xid), and use another board"
}
