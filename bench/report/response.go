package report

import (
	"io"
	"slices"
)

// ResponseSchema names the format of [Response].
const ResponseSchema = "vprof.response/v1"

// negativeVerdict is the exit code of commands whose verdict is no.
const negativeVerdict = 3

// intervals hold for this share of cases like the one estimated.
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
	// Message is why a request was refused, and warnings.
	Message string `json:"message,omitempty"`
	// Report is the whole plan.
	Report *Report `json:"report,omitempty"`
}

// ResponsePoint is a batch size on a GPU.
type ResponsePoint struct {
	GPU   string `json:"gpu"`
	Batch int    `json:"batch"`
	// GPUs is how many GPUs share the work.
	GPUs int `json:"gpus"`
	// Safe reports whether the upper bound leaves the share of the memory free that smoke and fit leave; Unsafe is why
	// it does not. Fits reports only that the step runs on the whole memory.
	Safe   bool   `json:"safe"`
	Unsafe Reason `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	Fits   bool   `json:"fits"`
	// Reason is the plan's verdict.
	Reason Verdict `json:"reason"`
	// Device is the need of each GPU in bytes: the estimate, and its upper bound.
	Device int64 `json:"device_bytes"`
	Upper  int64 `json:"device_upper_bytes"`
	// Host is the need of each machine in bytes: the estimate, and its upper bound; absent where it is not known.
	Host      int64 `json:"host_bytes,omitempty"`
	HostUpper int64 `json:"host_upper_bytes,omitempty"`
}

// Of takes the answer from a plan.
func (a *Response) Of(r *Report) {
	a.Report, a.Confidence, a.Fits = r, confidence, len(r.Points) > 0
	for _, p := range r.Points {
		point := ResponsePoint{
			Batch:  p.Batch,
			GPUs:   max(1, r.Case.GPUs),
			Reason: p.Verdict(),
			Fits:   p.Verdict() == Fits,
		}
		if d, ok := r.Find(p.Device); ok {
			point.GPU = d.GPU
		}
		if p.Estimate != nil {
			point.Device, point.Upper = p.Estimate.Device.Bytes, p.Estimate.Device.High
			point.Safe, point.Unsafe = p.Estimate.safe(), p.Estimate.Unsafe
			if h := p.Estimate.Host; h != nil {
				point.Host, point.HostUpper = h.Bytes, h.High
			}
		}
		a.Fits = a.Fits && point.Fits
		a.Points = append(a.Points, point)
	}
	if !slices.ContainsFunc(a.Points, func(p ResponsePoint) bool { return p.Fits }) {
		a.ExitCode = negativeVerdict
	}
}

// WriteResponse writes a response as JSON: for people to read, or in a line.
func WriteResponse(w io.Writer, a *Response, indented bool) error {
	return encoder(w, indented).Encode(a)
}
