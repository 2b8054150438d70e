package cuda

import (
	"context"
	"regexp"
	"runtime"
	"time"
)

// inLibrary matches the frame of a goroutine in a call of the driver or of NVML, in a stack trace of Go's runtime.
var inLibrary = regexp.MustCompile(`_Cfunc_(?:vprof_)?(cu[A-Z]\w*|nvml[A-Z]\w*)\(`)

// Watch reports calls of the driver and of NVML that hang. After each period in which a call was running and no other
// began, it reports the call's name and its minimum duration so far. A failed GPU may leave a call without an answer
// until the process ends. Watch returns when ctx is done.
func Watch(ctx context.Context, period time.Duration, report func(call string, waited time.Duration)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for before, waited := int64(-1), time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if calls := runtime.NumCgoCall(); calls != before {
			before, waited = calls, 0
		} else if call := pendingCall(); call != "" {
			waited += period
			report(call, waited)
		}
	}
}

// pendingCall returns the name of a call that a goroutine is in; empty if none is.
func pendingCall() string {
	stacks := make([]byte, 1<<20)
	found := inLibrary.FindSubmatch(stacks[:runtime.Stack(stacks, true)])
	if found == nil {
		return ""
	}
	return string(found[1])
}
