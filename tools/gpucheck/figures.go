package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
)

// schema names the format of result.json.
const schema = "vprof.gpucheck/v1"

// simulatedDriver is the release that a simulated driver reports.
const simulatedDriver = "simulated driver"

// A result has the outcome of all steps and the machine's details.
type result struct {
	Schema string `json:"schema"`
	// Simulated reports whether the driver was simulated, so that nothing was measured.
	Simulated bool        `json:"simulated"`
	GPU       string      `json:"gpu"`
	UUID      string      `json:"uuid,omitempty"`
	Driver    string      `json:"driver"`
	CUDA      string      `json:"cuda"`
	Tool      report.Tool `json:"tool"`
	Started   time.Time   `json:"started"`
	Steps     []step      `json:"steps"`
	Figures   []figure    `json:"figures"`
	// Needs are the bytes of models by PyTorch, by the plan and by the sweep.
	Needs []need `json:"needs,omitempty"`
	// Verdict is the overall outcome; empty on a simulated driver.
	Verdict verdict `json:"verdict,omitempty"`
	// Defects are faults of the GPU. Missing are values that the steps did not produce.
	Defects []string `json:"defects,omitempty"`
	Missing []string `json:"missing,omitempty"`

	memory int64 // bytes of the GPU
}

// A figure is a measured value and its allowed range.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// AtLeast and AtMost are the bounds to pass; absent for no bound.
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	// Impossible is the value above which the measurement must be wrong, since no GPU of this kind reaches it; absent
	// for none.
	Impossible float64 `json:"impossible,omitempty"`
}

// reached reports whether the value is within its bounds.
func (f figure) reached() bool {
	return f.Value >= f.AtLeast && (f.AtMost == 0 || f.Value <= f.AtMost) && f.possible()
}

// possible reports whether a GPU can reach the value.
func (f figure) possible() bool { return f.Impossible == 0 || f.Value <= f.Impossible }

func (f figure) bar() string {
	switch {
	case f.AtLeast > 0:
		return fmt.Sprintf(">= %g", f.AtLeast)
	case f.AtMost > 0:
		return fmt.Sprintf("<= %g", f.AtMost)
	}
	return ""
}

// shares returns the percentages of the GPU's peak rates that kernels should reach, by kernel. Products reach less from
// Hopper on, since the peak requires instructions that the kernels lack (docs/lab/gpu.md), and little on Turing, whose
// server GPUs are limited by power.
func shares(c device.Capability) map[string]float64 {
	products := 50.0
	switch {
	case c >= 120:
		products = 45
	case c >= 100:
		products = 15
	case c >= 90:
		products = 30
	case c < 80:
		products = 30
	}
	return map[string]float64{
		"fill": 85, "elementwise-f32": 80, "elementwise-f16": 80, "gemm-f16": products,
		"gemm-f32": 40,
	}
}

// Upper bounds of rates. A few percent above the GPU's peak are possible: data sheets state lower clocks.
const (
	impossibleBandwidth = 110
	impossibleProducts  = 130
)

// Bounds of the sweep.
const (
	sweepBatches = 8
	deviceError  = 2 // percent, after calibration
)

// sweepSeconds returns the time limit of the sweep: 15 s for a GPU of 20 TFLOP/s in FP32, proportionally more for a
// slower one.
func sweepSeconds(gpu device.GPU) float64 {
	const seconds, rate = 15, 20e12
	if gpu.Peak.FP32 == 0 {
		return 0 // FP32 rate unknown
	}
	return math.Round(seconds * max(1, rate/gpu.Peak.FP32))
}

// gpu returns the checked GPU from the catalog; the zero GPU if the catalog lacks it.
func (r *result) gpu() device.GPU {
	gpu, _ := device.Identify(r.GPU, r.memory)
	return gpu
}

// read reads the values that the steps wrote to a folder. The error names missing values of steps that failed.
func (r *result) read(out string) error {
	return errors.Join(r.kernels(filepath.Join(out, "kernels.txt")), r.sweep(out), r.calibration(out))
}

// line matches a benchmark result: "BenchmarkReal/NAME-CPUS  N  VALUE UNIT ...".
var line = regexp.MustCompile(`(?m)^BenchmarkReal/([\w-]+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func (r *result) kernels(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		words := strings.Fields(m[2])
		for i := 0; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", file, m[0], err)
			}
			switch unit := words[i+1]; unit {
			case "%peak":
				impossible := float64(impossibleBandwidth)
				if strings.HasPrefix(m[1], "gemm") {
					impossible = impossibleProducts
				}
				r.Figures = append(r.Figures, figure{
					Name: m[1], Value: value, Unit: "% of the peak",
					AtLeast: shares(r.gpu().Capability)[m[1]], Impossible: impossible,
				})
			case "GB/s", "TFLOP/s":
				r.Figures = append(r.Figures, figure{Name: m[1], Value: value, Unit: unit})
			}
		}
	}
	return nil
}

func (r *result) sweep(out string) error {
	f, err := os.Open(filepath.Join(out, "sweep.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	reports, err := report.Read("sweep.json", f)
	if err != nil {
		return err
	}
	r.Tool = reports[0].Tool
	ran := 0
	for _, p := range reports[0].Points {
		if p.Run != nil && p.Run.Fits {
			ran++
		}
	}
	r.Figures = append(r.Figures, figure{Name: "batch sizes of the sweep", Value: float64(ran), AtLeast: sweepBatches})
	for _, s := range r.Steps {
		if s.Name == "sweep" {
			r.Figures = append(r.Figures, figure{
				Name: "time of the sweep", Value: s.Seconds, Unit: "s",
				AtMost: sweepSeconds(r.gpu()),
			})
		}
	}
	return nil
}

func (r *result) calibration(out string) error {
	text, err := os.ReadFile(filepath.Join(out, "calibration.json"))
	if err != nil {
		return err
	}
	var c report.Calibration
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("calibration.json: %w", err)
	}
	percent := func(name string, share, bar float64) {
		r.Figures = append(r.Figures, figure{Name: name, Value: 100 * share, Unit: "%", AtMost: bar})
	}
	percent("error of device bytes", c.Errors.Before.Max, 0)
	percent("error of device bytes, calibrated", c.Errors.After.Max, deviceError)
	if held := c.Errors.HeldOut; held != nil {
		percent("error of device bytes, calibrated by the other batch sizes", held.Max, 0)
	}
	return nil
}

// write writes result.json and summary.md.
func (r *result) write(out string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "result.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(out, "summary.md"), []byte(r.summary()), 0o644),
	)
}

// summary returns the result as Markdown.
func (r *result) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, driver %s, CUDA %s\n\n", r.GPU, r.Driver, r.CUDA)
	if r.Simulated {
		b.WriteString(
			"**SIMULATED: there was no GPU. No figure here was measured; none belongs into bench/reference.**\n\n")
	}
	if r.Verdict != "" {
		fmt.Fprintf(&b, "**%s**\n\n", r.Verdict)
	}
	for _, d := range r.Defects {
		fmt.Fprintf(&b, "- %s\n", d)
	}
	if len(r.Defects) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "vprof %s %s, %s\n\n", r.Tool.Version, r.Tool.Commit, r.Started.Format(time.RFC3339))
	b.WriteString("| figure | value | bar | |\n|:--- | ---:| ---:|:--- |\n")
	for _, f := range r.Figures {
		mark := ""
		if bar := f.bar(); bar != "" && !r.Simulated {
			mark = "reached"
			if !f.reached() {
				mark = "MISSED"
			}
		}
		if !f.possible() && !r.Simulated {
			mark = "IMPOSSIBLE"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Name,
			strings.TrimSpace(strconv.FormatFloat(math.Round(f.Value*100)/100, 'g', -1, 64)+" "+f.Unit), f.bar(), mark)
	}
	b.WriteString(r.needTable())
	b.WriteString("\n| step | exit code | time | |\n|:--- | ---:| ---:|:--- |\n")
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "| %s | %d | %.1f s | %s |\n", s.Name, s.Exit, s.Seconds, s.Verdict)
	}
	return b.String()
}

// judge returns the verdict, with a [*verdictError] for a fault. Values of a simulated driver need not reach their
// bounds, but must be present.
func (r *result) judge() error {
	found := map[verdict][]string{defect: r.Defects}
	for _, s := range r.Steps {
		if s.Verdict == couldNotRun || s.Exit != 0 && s.Exit != negative && s.Verdict == "" {
			found[couldNotRun] = append(found[couldNotRun], s.Name+" failed")
		}
	}
	barred, wanted := 0, len(shares(0))+3
	for _, f := range r.Figures {
		if f.bar() == "" {
			continue
		}
		barred++
		switch {
		case r.Simulated:
		case !f.possible():
			found[couldNotRun] = append(found[couldNotRun],
				fmt.Sprintf("%s is %.4g %s, which no GPU can have", f.Name, f.Value, f.Unit))
		case !f.reached():
			found[slow] = append(found[slow], fmt.Sprintf("%s is %.4g, not %s", f.Name, f.Value, f.bar()))
		}
	}
	if sweepSeconds(r.gpu()) == 0 {
		wanted-- // the sweep's time limit is unknown
	}
	if barred < wanted {
		found[couldNotRun] = append(found[couldNotRun],
			fmt.Sprintf("%d of %d figures are missing", wanted-barred, wanted))
	}
	worst, wrong := healthy, []string(nil)
	for _, v := range []verdict{slow, couldNotRun, defect} {
		if len(found[v]) > 0 {
			worst, wrong = v, append(found[v], wrong...)
		}
	}
	if !r.Simulated {
		r.Verdict = worst
	}
	if len(wrong) > 0 {
		return &verdictError{worst, wrong}
	}
	return nil
}
