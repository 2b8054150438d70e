package monitor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
)

// Line is a sample for people, in a line.
func (s Sample) Line() string {
	at := s.Time.Format("15:04:05.000")
	if s.Error != "" {
		return fmt.Sprintf("%s gpu %d  lost: %s", at, s.GPU, s.Error)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s gpu %d  %s of %s (%.0f %%)", at, s.GPU, bytesize.Format(s.Used), bytesize.Format(s.Total), 100*s.Share())
	if s.Watched != nil {
		if *s.Watched < 0 {
			b.WriteString("  watched: NVML does not tell")
		} else {
			fmt.Fprintf(&b, "  watched %s", bytesize.Format(*s.Watched))
		}
	}
	fmt.Fprintf(&b, "  peak %s", bytesize.Format(s.Peak))
	if s.GPUPercent != nil {
		fmt.Fprintf(&b, "  busy %d %%", *s.GPUPercent)
	}
	if s.Celsius != nil {
		fmt.Fprintf(&b, "  %d °C", *s.Celsius)
	}
	if s.Watts != nil {
		fmt.Fprintf(&b, "  %.0f W", *s.Watts)
	}
	return b.String()
}

// Header is the first row of a CSV file of samples.
func Header() []string {
	return []string{
		"time", "gpu", "name", "uuid", "total_bytes", "used_bytes", "watched_bytes", "peak_bytes",
		"gpu_percent", "memory_percent", "celsius", "watts", "sm_mhz", "error",
	}
}

// Record is the sample's row. Cells of what is not known are empty.
func (s Sample) Record() []string {
	return []string{
		s.Time.Format(time.RFC3339Nano), strconv.Itoa(s.GPU), s.Name, s.UUID,
		strconv.FormatInt(s.Total, 10), strconv.FormatInt(s.Used, 10), cell(s.Watched), strconv.FormatInt(s.Peak, 10),
		cell(s.GPUPercent), cell(s.MemPercent), cell(s.Celsius), cell(s.Watts), cell(s.SMMHz), s.Error,
	}
}

func cell[T int | int64 | float64](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}
