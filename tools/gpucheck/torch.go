package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
)

// Steps that measure what PyTorch needs on the GPU, and compare vprof's estimates.

//go:embed torch_models.py
var torchModels []byte

// torchCases lists the models of torch_models.py that PyTorch trains. The real models come first; they are also swept,
// so that measurement, plan and sweep can be compared.
var torchCases = []struct {
	name, input string
	swept       bool
}{
	{"redimnet_b2", "x=float32[batch,72,301]", true},
	{"spoter", "x=float32[batch,100,108]", true},
	{"convnet", "x=float32[batch,3,128,128]", false},
	{"depthwise", "x=float32[batch,3,128,128]", false},
	{"mlp", "x=float32[batch,1024]", false},
	{"transformer", "x=float32[batch,256,512]", false},
	{"autoencoder", "x=float32[batch,3,128,128]", false},
}

// torchSteps returns the commands of --with-torch, each with its name first. A case is captured, recorded while it
// trains, and compared. The files are written to the folder torch.
func (c *check) torchSteps() ([][]string, error) {
	if c.python == "" {
		return nil, nil
	}
	dir := filepath.Join(c.out, "torch")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	models := filepath.Join(dir, "torch_models.py")
	if err := os.WriteFile(models, torchModels, 0o644); err != nil {
		return nil, err
	}
	vprof, record := filepath.Join(c.bin, "vprof"), filepath.Join(c.bin, "tools", "record", "record.py")
	// record.py imports capture.py, which resolves model names.
	for _, file := range []string{record, filepath.Join(c.bin, "models", "capture", "capture.py")} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%w; make gpu-check-build puts it there", err)
		}
	}
	device := []string{"--device", "cuda:0"}
	if c.result.Simulated {
		// A dry run: the values are no evidence and marked so.
		device = []string{"--device", "cpu", "--gpu", "t4"}
	}
	steps := [][]string{{
		"torch", c.python, "-c",
		"import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())",
	}}
	for _, t := range torchCases {
		file, peaks := filepath.Join(dir, t.name+".pt2"), filepath.Join(dir, t.name+".jsonl")
		steps = append(steps,
			[]string{
				"capture-" + t.name, vprof, "capture", models + ":" + t.name, "--input", t.input, "--python",
				c.python, "-o", file,
			},
			append([]string{
				"record-" + t.name, c.python, record, "peaks", models + ":" + t.name, "--input", t.input,
				"--batch", "8,32",
				"--amp", "none,fp16", "--case", file, "--out", peaks,
			}, device...),
			[]string{
				"accuracy-" + t.name, vprof, "accuracy", peaks, "--format", "json", "--export",
				filepath.Join(dir, t.name+"-accuracy.json"),
			},
		)
		if t.swept {
			steps = append(steps, []string{
				"sweep-" + t.name, vprof, "sweep", "--model", file, "--batch", "8,32", "--device", "cuda:0",
				"--quiet", "--warm-up", "0", "--repeat", "1",
				"--export", filepath.Join(dir, t.name+"-sweep.json"),
			})
			if !c.result.Simulated { // PyTorch cannot use a simulated driver
				steps = append(steps, []string{
					"both-" + t.name, vprof, "run", "--both", "--", c.python, models,
					t.name, "8",
				})
			}
		}
	}
	return steps, nil
}

// torchBar is the largest allowed error of reserved bytes in percent. On GPUs and releases without records, workspaces
// of libraries differ.
const torchBar = 10

// torch adds the largest error of each case's peaks to the figures.
func (r *result) torch(out string) error {
	var errs []error
	for _, t := range torchCases {
		text, err := os.ReadFile(filepath.Join(out, "torch", t.name+"-accuracy.json"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var a struct {
			Summary struct {
				Compared int
				Reserved struct{ Max float64 }
			}
		}
		if err := json.Unmarshal(text, &a); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name, err))
			continue
		}
		if a.Summary.Compared == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing of what PyTorch needed was compared", t.name))
			continue
		}
		if t.swept {
			errs = append(errs, r.compareNeeds(out, t.name))
		}
		r.Figures = append(r.Figures, figure{
			Name:  "PyTorch, " + t.name + ": largest error of reserved bytes",
			Value: 100 * a.Summary.Reserved.Max, Unit: "%", AtMost: torchBar,
		})
	}
	return errors.Join(errs...)
}

// A need is the bytes of a model's step at a batch size, by source: PyTorch, the plan, or the sweep.
type need struct {
	Model     string `json:"model"`
	Batch     int    `json:"batch"`
	By        string `json:"by"`
	Allocated int64  `json:"allocated_bytes"`
	Reserved  int64  `json:"reserved_bytes"`
	Device    int64  `json:"device_bytes"`
}

// compareNeeds adds the bytes of a model by PyTorch, by the plan and by the sweep.
func (r *result) compareNeeds(out, model string) error {
	file := func(name string) string { return filepath.Join(out, "torch", model+name) }
	f, err := os.Open(file("-sweep.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	reports, err := report.Read(f.Name(), f)
	if err != nil {
		return err
	}
	records, err := os.ReadFile(file(".jsonl"))
	if err != nil {
		return err
	}
	for _, p := range reports[0].Points {
		if p.Estimate == nil || p.Run == nil || !p.Run.Fits {
			continue
		}
		if needed, ok := torchNeed(records, p.Batch); ok {
			needed.Model = model
			r.Needs = append(r.Needs, needed)
		}
		e, u := p.Estimate, p.Run
		r.Needs = append(r.Needs, need{model, p.Batch, "plan", e.Allocated.Bytes, e.Reserved.Bytes, e.Device.Bytes},
			need{model, p.Batch, "sweep", u.Allocated, u.Reserved, u.Device - u.Kernels})
	}
	return nil
}

// torchNeed returns PyTorch's bytes for a batch size in fp32, from reference records.
func torchNeed(records []byte, batch int) (need, bool) {
	for line := range strings.Lines(string(records)) {
		var record struct {
			Status    string
			Batch     int
			AMP       string
			Allocated int64 `json:"peak_allocated"`
			Reserved  int64 `json:"peak_reserved"`
			Device    int64 `json:"peak_device_used"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Status == "ok" && record.Batch == batch &&
			record.AMP == "" {
			return need{"", batch, "PyTorch", record.Allocated, record.Reserved, record.Device}, true
		}
	}
	return need{}, false
}

// needTable returns the needs as a Markdown table.
func (r *result) needTable() string {
	if len(r.Needs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| model | batch | by | allocated | reserved | device |\n|:--- | ---:|:--- | ---:| ---:| ---:|\n")
	for _, n := range r.Needs {
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", n.Model, n.Batch, n.By, bytesize.Format(n.Allocated),
			bytesize.Format(n.Reserved), bytesize.Format(n.Device))
	}
	return b.String()
}
