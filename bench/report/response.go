package report

import (
	"io"

	"github.com/vprof/vprof/internal/lists"
)

// ResponseSchema names the format of [Response].
const ResponseSchema = "vprof.response/v1"

// negativeVerdict is the exit code of commands whose verdict is no.
const negativeVerdict = 3

// confidence is the share of cases whose need lies within the intervals.
const confidence = 0.95

// Response is the answer for a scheduler or an agent: whether training fits.
type Response struct {
	Schema string `json:"schema"               jsonschema:"const=vprof.response/v1"`
	// ExitCode is the exit code of the command: 0 something fits, 1 failure, 2 a wrong request, 3 nothing fits.
	ExitCode int `json:"exit_code"`
	// Fits reports whether every point fits.
	Fits bool `json:"fits"`
	// Confidence is the share of cases like this one that need no more than the upper bounds.
	Confidence float64         `json:"confidence,omitempty"`
	Points     []ResponsePoint `json:"points,omitempty"`
	// Message has warnings, or the reason why a request was refused.
	Message string `json:"message,omitempty"`
	// Report is the whole plan.
	Report *Report `json:"report,omitempty"`
}

// ResponsePoint is a batch size on a GPU.
type ResponsePoint struct {
	GPU   string `json:"gpu"`
	Batch int    `json:"batch"`
	// GPUs is the number of GPUs that share the work.
	GPUs int `json:"gpus"`
	// Safe reports whether the upper bound is within the share of the memory that smoke and fit allow; Unsafe is why it
	// is not. Fits reports only that the step runs on the whole memory.
	Safe   bool   `json:"safe"`
	Unsafe Reason `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	Fits   bool   `json:"fits"`
	// Reason is the plan's verdict.
	Reason Verdict `json:"reason"`
	// Device is the need of each GPU in bytes: the estimate, and its upper bound.
	Device int64 `json:"device_bytes"`
	Upper  int64 `json:"device_upper_bytes"`
	// Host is the need of each machine in bytes: the estimate, and its upper bound; absent if unknown.
	Host      int64 `json:"host_bytes,omitempty"`
	HostUpper int64 `json:"host_upper_bytes,omitempty"`
}

// FillFrom fills in the answer from plans: of a case, or of its releases or ranks. It considers all of their points.
func (a *Response) FillFrom(plans ...*Report) {
	a.Confidence = confidence
	for _, r := range plans {
		a.Report = r // which is not written where there are several
		for _, p := range r.Points {
			a.Points = append(a.Points, r.responsePoint(p))
		}
	}
	fitting := lists.Filter(a.Points, func(p ResponsePoint) bool { return p.Fits })
	a.Fits = len(fitting) > 0 && len(fitting) == len(a.Points)
	if len(fitting) == 0 {
		a.ExitCode = negativeVerdict
	}
}

// responsePoint returns a point of the plan for programs.
func (r *Report) responsePoint(p Point) ResponsePoint {
	d, _ := r.Find(p.Device)
	out := ResponsePoint{
		GPU: d.GPU, Batch: p.Batch, GPUs: max(1, r.Case.GPUs), Reason: p.Verdict(), Fits: p.Verdict() == Fits,
	}
	if e := p.Estimate; e != nil {
		out.Device, out.Upper, out.Safe, out.Unsafe = e.Device.Bytes, e.Device.High, e.isSafe(), e.Unsafe
		if e.Host != nil {
			out.Host, out.HostUpper = e.Host.Bytes, e.Host.High
		}
	}
	return out
}

// WriteResponse writes a response as JSON: indented for people, or as one line.
func WriteResponse(w io.Writer, a *Response, indented bool) error {
	return encoder(w, indented).Encode(a)
}
