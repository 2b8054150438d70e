package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// What PyTorch itself needs on the board, and what vprof says it does: the evidence
// that no board without it gives.

//go:embed torch_models.py
var torchModels []byte

// torchCases are what is trained with PyTorch: models of torch_models.py.
var torchCases = []struct{ name, input string }{
	{"convnet", "x=float32[batch,3,128,128]"},
	{"depthwise", "x=float32[batch,3,128,128]"},
	{"mlp", "x=float32[batch,1024]"},
	{"transformer", "x=float32[batch,256,512]"},
	{"autoencoder", "x=float32[batch,3,128,128]"},
}

// torchSteps are the commands of --with-torch by name. Each case is captured,
// recorded while it trains, and judged. They leave their files in the folder torch.
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
	vprof, record := filepath.Join(c.bin, "vprof"), filepath.Join(c.bin, "record", "record.py")
	device := []string{"--device", "cuda:0"}
	if c.result.Simulated {
		// A dry run: its figures are no evidence, and say so.
		device = []string{"--device", "cpu", "--gpu", "t4"}
	}
	steps := [][]string{{"torch", c.python, "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"}}
	for _, t := range torchCases {
		file, peaks := filepath.Join(dir, t.name+".pt2"), filepath.Join(dir, t.name+".jsonl")
		steps = append(steps,
			[]string{"capture-" + t.name, vprof, "capture", models + ":" + t.name, "--input", t.input, "--python", c.python, "-o", file},
			append([]string{
				"record-" + t.name, c.python, record, "peaks", models + ":" + t.name, "--input", t.input, "--batch", "8,32",
				"--amp", "none,fp16", "--case", file, "--out", peaks,
			}, device...),
			[]string{"accuracy-" + t.name, vprof, "accuracy", peaks, "--format", "json", "--export", filepath.Join(dir, t.name+"-accuracy.json")},
		)
	}
	return steps, nil
}

// torchBar is how far off the reserved bytes may be, in percent: on boards and
// releases that nobody has recorded, libraries' workspaces differ.
const torchBar = 10

// torch takes the largest error of each case's peaks.
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
		r.Figures = append(r.Figures, figure{Name: "PyTorch, " + t.name + ": largest error of reserved bytes", Value: 100 * a.Summary.Reserved.Max, Unit: "%", AtMost: torchBar})
	}
	return errors.Join(errs...)
}
