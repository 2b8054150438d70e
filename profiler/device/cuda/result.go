package cuda

import (
	_ "embed" // the results
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/allocator"
)

// A CallError is a call of the driver that failed.
type CallError struct {
	// Call is the name of the call, such as "cuMemAlloc". Bytes is the size that it was given, zero if it has none.
	Call  string
	Bytes int64
	// Code is the CUresult.
	Code int
}

func (e *CallError) Error() string {
	r, known := results[e.Code]
	if !known {
		r = result{name: fmt.Sprintf("CUDA error %d", e.Code), text: "unknown error"}
	}
	call := e.Call
	if e.Bytes > 0 {
		call += " of " + bytesize.Format(e.Bytes)
	}
	s := fmt.Sprintf("%s: %s (%s)", call, r.text, r.name)
	if r.remedy != "" {
		s += "; " + r.remedy
	}
	return s
}

// Is makes the driver's error for lack of memory an [allocator.ErrOutOfMemory], which the allocator treats as a result.
func (e *CallError) Is(target error) bool {
	return target == allocator.ErrOutOfMemory && e.Code == outOfMemory
}

// Lost reports whether the failure took the context with it: every later call fails too, until the context is released.
func (e *CallError) Lost() bool { return results[e.Code].lost }

// The results that code branches on, as in the CUresult of cuda.h.
const (
	outOfMemory     = 2
	unavailable     = 46
	noDevice        = 100
	invalidDevice   = 101
	noBinary        = 209
	noCompiler      = 221
	newerPTX        = 222
	compilerOff     = 223
	operatingSystem = 304
	notPermitted    = 800
)

// A result describes a CUresult.
type result struct {
	name, text, remedy string
	lost               bool
}

// results holds the results that a driver can be expected to return, from the documentation of CUresult. Remedies for
// old drivers have a placeholder for the required release.
var results = readResults()

//go:embed results.csv
var resultsCSV string

func readResults() map[int]result {
	rows, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(resultsCSV, "{driver}", driverOf))).ReadAll()
	all := map[int]result{}
	for _, row := range rows[1:] {
		var code int
		if code, err = strconv.Atoi(row[0]); err != nil {
			break
		}
		all[code] = result{name: row[1], text: row[2], remedy: row[3], lost: row[4] == "true"}
	}
	if err != nil {
		panic(err) // it is embedded
	}
	return all
}
