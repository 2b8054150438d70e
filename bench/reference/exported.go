package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// wireExported is a record of a model that torch.export can export, from another library, over some steps of a plain
// training loop: on one GPU, or on one rank of several. Files of such records have no header.
type wireExported struct {
	wirePeaks
	Spec          string            `json:"spec"`
	Loss          string            `json:"loss"`
	Freeze        string            `json:"freeze"`
	ChannelsLast  bool              `json:"channels_last"`
	Checkpointing bool              `json:"checkpointing"`
	Weights       models.WeightType `json:"weights"`
	Accumulate    int               `json:"accumulate"`
	Clip          bool              `json:"clip"`
	Steps         int               `json:"steps"`
	Torch         string            `json:"torch"`
	// Fields of a record from one rank of several, which has another field for the model.
	Model    string                     `json:"model"`
	Strategy string                     `json:"strategy"`
	Options  map[string]json.RawMessage `json:"options"`
	World    int                        `json:"world"`
}

// wirePeaks has the fields that all records of models from other libraries have.
type wirePeaks struct {
	Batch         int        `json:"batch"`
	AMP           string     `json:"amp"`
	Optimizer     string     `json:"optimizer"`
	Params        int64      `json:"params"`
	Trainable     int64      `json:"trainable"`
	Status        string     `json:"status"`
	Error         string     `json:"error"`
	GPU           string     `json:"gpu"`
	PeakAllocated int64      `json:"peak_allocated"`
	PeakReserved  int64      `json:"peak_reserved"`
	ByStep        [][3]int64 `json:"by_step"`
}

func (w *wirePeaks) newRecord(c models.Case, steps int) (r Record, err error) {
	r = Record{
		Case: c, GPU: w.GPU, Status: Status(w.Status), Error: w.Error, Runs: steps, Rising: true,
		Params:        report.Parameters{Total: w.Params, Trainable: w.Trainable},
		PeakAllocated: w.PeakAllocated, PeakReserved: w.PeakReserved,
	}
	r.Batch = w.Batch
	if w.Optimizer != "adamw" {
		r.Optimizer = w.Optimizer
	}
	if r.AMP, err = models.ParseAutocast(w.AMP); err != nil {
		return r, fieldError("amp", "%v", err)
	}
	return r, nil
}

// setTorch sets the release of PyTorch if a record contains it.
func (r *Record) setTorch(torch string) (err error) {
	if torch == "" {
		return nil
	}
	if r.Torch, err = models.ParseRelease(torch); err != nil {
		return fieldError("torch", "%v", err)
	}
	return nil
}

// isExported reports whether the first line of a file is a record of an exported model.
func isExported(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"spec"`)) ||
		bytes.HasPrefix(line, []byte(`{"model"`)) && bytes.Contains(line, []byte(`"strategy"`)) && !isFineTune(line)
}

// exportedLosses are the losses of records that name none, by the model's library: transformers' models return a loss.
var exportedLosses = map[string]string{"hf": "output", "diffusers": "mse", "own": "token-cross-entropy"}

// singleGPU is the strategy of records from one GPU.
const singleGPU = "single"

func decodeExported(line []byte) (Record, error) {
	var w wireExported
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	key, ranked := "spec", w.Model != ""
	if ranked {
		key, w.Spec, w.Steps = "model", w.Model, max(len(w.ByStep), 3)
	}
	library, _, named := strings.Cut(w.Spec, ":")
	r, err := w.newRecord(models.Case{
		Model: w.Spec, Checkpointing: w.Checkpointing, Accumulate: max(w.Accumulate, 1), Freeze: w.Freeze,
		Loss: cmp.Or(w.Loss, exportedLosses[library], "cross-entropy"),
	}, w.Steps)
	if err == nil {
		err = r.setTorch(w.Torch)
	}
	if err != nil {
		return r, err
	}
	r.Exported = true
	if w.ChannelsLast {
		r.Settings = models.Settings{"channels-last": 1}
	}
	if w.Weights != models.FP32 {
		r.Weights = w.Weights
	}
	if w.Clip {
		r.Clip = models.ClipNorm
	}
	switch {
	case !named:
		return r, fieldError(key, "%q is not LIBRARY:NAME", w.Spec)
	case w.Steps < 1 || w.Steps > maxSteps:
		return r, fieldError("steps", "want from 1 to %d, found %d", maxSteps, w.Steps)
	case r.Status == StatusOK && r.PeakAllocated < 1:
		return r, fieldError("peak_allocated", "want bytes, found %d", r.PeakAllocated)
	case ranked && w.World < 1:
		return r, fieldError("world", "want a number of ranks, found %d", w.World)
	}
	if ranked && w.Strategy != singleGPU {
		s, err := w.strategy()
		if err != nil {
			return r, fieldError("strategy", "%v", err)
		}
		r.GPUs, r.Strategy = w.World, &s
	}
	return r, r.validate()
}

// strategy returns the strategy of the recorded script: with a bucket_cap_mb of 25, rank 0, and the whole model on the
// device before sharding, unless options differ.
func (w *wireExported) strategy() (models.Strategy, error) {
	var fields []string
	add := func(key, value string) { fields = append(fields, key+"="+value) }
	for key, value := range w.Options {
		add(key, strings.Trim(string(value), `"`))
	}
	if _, given := w.Options["rank"]; !given {
		add("rank", "0")
	}
	if _, given := w.Options["bucket_cap_mb"]; !given &&
		(w.Strategy == models.DDP || w.Strategy == models.ZeRO1 && w.Options["engine"] == nil) {
		add("bucket_cap_mb", "25")
	}
	if _, given := w.Options["init"]; !given && (w.Strategy == models.FSDP2 || w.Strategy == models.TP) {
		add("init", "device")
	}
	slices.Sort(fields)
	s, err := models.ParseStrategy(w.Strategy + ":" + strings.Join(fields, ","))
	if err != nil {
		return s, fmt.Errorf("%s: %w", w.Strategy, err)
	}
	return s, nil
}

// maxSteps is the largest accepted number of steps in a record.
const maxSteps = 1000

// FileName returns the file name of an exported model.
func FileName(spec string) string {
	return strings.ReplaceAll(strings.Replace(spec, ":", "-", 1), "/", "_") + ".pt2"
}

// decoderOf returns the function that decodes the lines of a file with this first line. header reports whether that
// line is a header.
func decoderOf(first []byte) (decode func([]byte) (Record, error), header bool) {
	switch {
	case isMeasured(first):
		return decodeMeasured, false
	case isExported(first):
		return decodeExported, false
	case isFineTune(first):
		return decodeFineTune, false
	}
	return decodeRecord, true
}
