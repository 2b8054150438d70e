package trainers

import (
	"strings"

	"github.com/vprof/vprof/internal/phrase"
)

// The facts of optimizers with projected gradients (GaLore): the kind, the rank, and the layers.
const (
	lowPrecision = "low"
	lowRank      = "low-rank"
	lowTarget    = "low-target"
	// optimArgs is the fact of transformers' optim_args: "key=value" pairs, separated by commas.
	optimArgs = "optim-args"
)

// projectedOptimizers maps optimizers to their GaLore variants.
var projectedOptimizers = map[string]string{
	"adamw": "galore-adamw", "adamw-fused": "galore-adamw", "adamw8bit": "galore-adamw8bit",
	"paged-adamw8bit":        "galore-adamw8bit",
	"adafactor-transformers": "galore-adafactor",
}

// addProjection replaces the configured optimizer with its GaLore variant and options (adamw becomes galore-adamw).
func (c *Config) addProjection() error {
	o := c.facts["optimizer"]
	l := c.facts[lowPrecision]
	if l.value == "" {
		return nil
	}
	name := o.value
	if !strings.HasPrefix(name, l.value) {
		if name = projectedOptimizers[o.value]; name == "" {
			return l.fault("vprof does not record %s with optimizer %s", l.value, o.value)
		}
	}
	options, err := c.projectionOptions()
	if err != nil {
		return err
	}
	c.facts.set("optimizer", name, l.from)
	c.facts.appendOptions("optimizer", options...)
	return nil
}

func (c *Config) projectionOptions() (options phrase.List, err error) {
	rank := c.facts[lowRank]
	args := c.facts[optimArgs]
	for arg := range strings.SplitSeq(strings.ReplaceAll(args.value, " ", ""), ",") {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "rank":
			rank = fact{value, args.from}
		case key == "proj_type" && value != "std":
			return nil, args.fault("is %s: vprof records GaLore's matrices on the shorter side of a weight", arg)
		}
	}
	options.AddTexts(phrase.Prefix("rank=", rank.value))
	t := c.facts[lowTarget]
	switch parts := strings.NewReplacer(",", "+", " ", "", "[", "", "]", "").Replace(t.value); {
	case parts == "" || parts == "all": // LLaMA-Factory's
	case strings.ReplaceAll(parts, "_", "-") == "all-linear":
		options = append(options, "target=all-linear")
	case strings.ContainsAny(parts, `\*()|^$`):
		return nil, t.fault("is a regular expression; vprof takes a list of parts of layers' names")
	default:
		options = append(options, "target="+parts)
	}
	return options, nil
}
