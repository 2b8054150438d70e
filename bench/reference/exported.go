package reference

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/vprof/vprof/models"
)

// wireExported is a record of a model that other libraries have and torch.export
// can write, measured over some steps of a plain training loop. Files of such
// records have no header; each record names its release of PyTorch.
type wireExported struct {
	wirePeaks
	Spec          string `json:"spec"`
	Loss          string `json:"loss"`
	Freeze        string `json:"freeze"`
	ChannelsLast  bool   `json:"channels_last"`
	Checkpointing bool   `json:"checkpointing"`
	Steps         int    `json:"steps"`
	Torch         string `json:"torch"`
}

// wirePeaks is what records of models that are not vprof's own have in common.
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

// record is that of a case, over so many steps, with what is recorded of it.
func (w *wirePeaks) record(c models.Case, steps int) (r Record, err error) {
	r = Record{
		Case: c, GPU: w.GPU, Status: Status(w.Status), Error: w.Error, Runs: steps,
		Params:        Params{Total: w.Params, Trainable: w.Trainable},
		PeakAllocated: w.PeakAllocated, PeakReserved: w.PeakReserved,
	}
	r.Batch = w.Batch
	if w.Optimizer != "adamw" {
		r.Optimizer = w.Optimizer
	}
	if r.AMP, err = models.ParseAutocast(w.AMP); err != nil {
		return r, bad("amp", "%v", err)
	}
	return r, nil
}

// madeBy notes the release of PyTorch that a record names, if it does.
func (r *Record) madeBy(torch string) (err error) {
	if torch == "" {
		return nil
	}
	if r.Torch, err = models.ParseRelease(torch); err != nil {
		return bad("torch", "%v", err)
	}
	return nil
}

// isExported reports whether a file begins with a record of an exported model.
func isExported(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"spec"`)) }

// exportedLosses are the losses by the library of the model, of records that do
// not say: a model of transformers returns its loss.
var exportedLosses = map[string]string{"hf": "output", "diffusers": "mse", "own": "token-cross-entropy"}

// decodeExported reads a record of an exported model.
func decodeExported(line []byte) (Record, error) {
	var w wireExported
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	library, _, named := strings.Cut(w.Spec, ":")
	r, err := w.record(models.Case{
		Model: w.Spec, Checkpointing: w.Checkpointing, Accumulate: 1, Loss: w.Loss, Freeze: w.Freeze,
	}, w.Steps)
	if err != nil {
		return r, err
	}
	r.Exported = true
	if err := r.madeBy(w.Torch); err != nil {
		return r, err
	}
	r.Loss = cmp.Or(r.Loss, exportedLosses[library], "cross-entropy")
	if w.ChannelsLast {
		r.Settings = models.Settings{"channels-last": 1}
	}
	switch {
	case !named:
		return r, bad("spec", "%q is not LIBRARY:NAME", w.Spec)
	case w.Steps < 1 || w.Steps > mostSteps:
		return r, bad("steps", "want from 1 to %d, found %d", mostSteps, w.Steps)
	case r.Status == OK && r.PeakAllocated < 1:
		return r, bad("peak_allocated", "want bytes, found %d", r.PeakAllocated)
	}
	return r, r.validate()
}

// mostSteps is more than anybody records.
const mostSteps = 1000

// FileName is what the file of an exported model is called.
func FileName(spec string) string {
	return strings.ReplaceAll(strings.Replace(spec, ":", "-", 1), "/", "_") + ".pt2"
}

// decoderOf is what reads the lines of a file, by its first. Files without a header
// have a record there already.
func decoderOf(first []byte) (decode func([]byte) (Record, error), header bool) {
	switch {
	case isMeasured(first):
		return decodeMeasured, false
	case isExported(first):
		return decodeExported, false
	case isRank(first):
		return decodeRank, false
	case isFineTune(first):
		return decodeFineTune, false
	}
	return decodeRecord, true
}
