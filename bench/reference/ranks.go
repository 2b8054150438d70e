package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
)

// wireRank is a record of one rank of several, measured over three steps of a plain
// training loop. Files of such records have no header.
type wireRank struct {
	wirePeaks
	Model         string                     `json:"model"`
	Weights       models.WeightType          `json:"weights"`
	Strategy      string                     `json:"strategy"`
	Options       map[string]json.RawMessage `json:"options"`
	World         int                        `json:"world"`
	Accumulate    int                        `json:"accumulate"`
	Checkpointing bool                       `json:"checkpointing"`
	Clip          bool                       `json:"clip"`
}

// isRank reports whether a file begins with a record of a rank, of an exported model.
func isRank(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"model"`)) && bytes.Contains(line, []byte(`"strategy"`)) && !isFineTune(line)
}

// single is what records call the strategy of one GPU alone.
const single = "single"

// decodeRank reads a record of a rank.
func decodeRank(line []byte) (Record, error) {
	var w wireRank
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	library, _, named := strings.Cut(w.Model, ":")
	r, err := w.record(models.Case{
		Model: w.Model, Accumulate: max(w.Accumulate, 1), Checkpointing: w.Checkpointing,
		Loss: cmp.Or(exportedLosses[library], "cross-entropy"),
	}, max(len(w.ByStep), 3))
	if err != nil {
		return r, err
	}
	r.Exported = true
	if w.Weights != "" && w.Weights != models.FP32 {
		r.Weights = w.Weights
	}
	if w.Clip {
		r.Clip = models.ClipNorm
	}
	switch {
	case !named:
		return r, bad("model", "%q is not LIBRARY:NAME", w.Model)
	case r.Status == OK && r.PeakAllocated < 1:
		return r, bad("peak_allocated", "want bytes, found %d", r.PeakAllocated)
	case w.World < 1:
		return r, bad("world", "want a number of ranks, found %d", w.World)
	}
	if w.Strategy != single {
		s, err := w.strategy()
		if err != nil {
			return r, bad("strategy", "%v", err)
		}
		r.GPUs, r.Strategy = w.World, &s
	}
	return r, r.validate()
}

// strategy is how the record's script called PyTorch: with a bucket_cap_mb of 25, rank 0 and a
// whole model on the device before it is sharded, unless the options say otherwise.
func (w *wireRank) strategy() (models.Strategy, error) {
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
