package reference

import (
	"embed"
	"encoding/json"
	"io/fs"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// wireFineTune is a record of a fine-tuning step with transformers, peft, bitsandbytes and liger-kernel. Files of such
// records have no header.
type wireFineTune struct {
	wirePeaks
	Model         string          `json:"model"`
	Weights       string          `json:"weights"`
	Adapter       string          `json:"adapter"`
	Rank          int64           `json:"rank"`
	Targets       string          `json:"targets"`
	Dropout       *float64        `json:"dropout"`
	Checkpointing json.RawMessage `json:"checkpointing"`
	Liger         bool            `json:"liger"`
	Offload       bool            `json:"offload"`
	InBackward    bool            `json:"in_backward"`
	Accumulate    int             `json:"accumulate"`
	Seq           int64           `json:"seq"`
	Loop          models.Loop     `json:"loop"`
	ZeroGrad      models.ZeroGrad `json:"zero_grad"`
	UseCache      bool            `json:"use_cache"`
	Unpacked      bool            `json:"unpacked"`
	Torch         string          `json:"torch"`
	// Fields of a record from one rank of several.
	GPUs     int              `json:"gpus"`
	Strategy *models.Strategy `json:"strategy"`
	Clip     bool             `json:"clip"`
	Routing  string           `json:"routing"`
}

func isFineTune(line []byte) bool {
	var w struct {
		Model   *string `json:"model"`
		Adapter *string `json:"adapter"`
	}
	return json.Unmarshal(line, &w) == nil && w.Model != nil && w.Adapter != nil
}

// The dropout before the adapters in the records.
const adapterDropout = 0.05

func decodeFineTune(line []byte) (Record, error) {
	var w wireFineTune
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	r, err := w.newRecord(models.Case{
		Model: FineTunedScheme + ":" + w.Model, Accumulate: w.Accumulate,
		Settings: models.Settings{"seq-len": w.Seq},
		MemoryOptions: models.MemoryOptions{
			Liger: w.Liger, Offload: w.Offload, InBackward: w.InBackward, Clip: models.ClipNone,
			Loop: w.Loop, ZeroGrad: w.ZeroGrad, Routing: w.Routing,
		},
	}, len(w.ByStep))
	if err != nil {
		return r, err
	}
	r.FineTuned = true
	if w.Loop != "" {
		r.UseCache = strconv.FormatBool(w.UseCache)
		r.Settings["shared-labels"] = 1 // as in the script
	}
	if !w.Unpacked {
		// On a simulated device, transformers finds several packed sequences in any position IDs, and makes a mask.
		r.Settings["packed"] = 1
	}
	if r.Weights, err = models.ParseWeightType(w.Weights); err != nil {
		return r, fieldError("weights", "%v", err)
	}
	if err := r.setTorch(w.Torch); err != nil {
		return r, err
	}
	r.GPUs, r.Strategy = w.GPUs, w.Strategy
	if w.Clip {
		r.Clip = models.ClipNorm
	}
	if err := w.checkpointing(&r.Case); err != nil {
		return r, err
	}
	if err := w.adapter(&r.Case); err != nil {
		return r, err
	}
	if r.Status == StatusOK && len(w.ByStep) == 0 {
		return r, fieldError("by_step", "missing")
	}
	return r, r.validate()
}

// checkpointing decodes false, or the kind of checkpointing.
func (w *wireFineTune) checkpointing(c *models.Case) error {
	var how string
	switch string(w.Checkpointing) {
	case "", "null", "false":
		return nil
	case "true":
		c.Checkpointing = true
		return nil
	}
	if json.Unmarshal(w.Checkpointing, &how) != nil {
		return fieldError("checkpointing", "%s is neither false nor the name of a kind", w.Checkpointing)
	}
	var err error
	c.Checkpointing = true
	if c.Recompute, err = models.ParseRecompute(how); err != nil {
		return fieldError("checkpointing", "%v", err)
	}
	return nil
}

// adapters maps the records' kinds of adapters to the quantization of the layers with adapters.
var adapters = map[string]string{"lora": "", "qlora": "nf4", "qlora-dq": "nf4-dq", "qlora-int8": "int8"}

// adapter decodes the kind of adapters.
func (w *wireFineTune) adapter(c *models.Case) error {
	quantize, ok := adapters[w.Adapter]
	switch {
	case w.Adapter == "none":
		return nil
	case !ok:
		return fieldError("adapter", "there is no adapter %q", w.Adapter)
	case w.Rank < 1:
		return fieldError("rank", "want at least 1, found %d", w.Rank)
	}
	c.Quantize = quantize
	c.LoRA = &models.LoRA{Rank: w.Rank, Alpha: 2 * w.Rank, Dropout: adapterDropout}
	if w.Dropout != nil {
		c.LoRA.Dropout = *w.Dropout
	}
	if w.Targets != "all-linear" && w.Targets != "" {
		c.LoRA.Targets = strings.Split(w.Targets, ",")
	}
	return nil
}

// FineTunedScheme is the prefix in the names of fine-tuned models.
const FineTunedScheme = "finetune"

// configs are the configurations of the models that were fine-tuned.
//
//go:embed data/finetune/*.json
var configs embed.FS

// FineTuned returns the source of the models that fine-tuning records name.
func FineTuned() models.Source {
	return models.Source{Scheme: FineTunedScheme, Open: func(name string) (models.Model, error) {
		text, err := fs.ReadFile(configs, "data/finetune/"+name+".json")
		if err != nil {
			return models.Model{}, &models.UnknownModelError{Name: name}
		}
		m, err := hfconfig.Parse(name+".json", text)
		for i, s := range m.Settings {
			if s.Name == models.DeviceMapSetting {
				m.Settings[i].Default = 2 // the recorded models were built, and then moved
			}
		}
		return m, err
	}}
}
