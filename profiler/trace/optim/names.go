package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/options"
)

type namedConfig struct {
	name   string
	config Config
}

// namedConfigs are the optimizers that --optimizer accepts, the usual ones first.
var namedConfigs = []namedConfig{
	{"adamw", Config{Algorithm: AdamW, WeightDecay: true}},
	{"adamw-fused", Config{Algorithm: AdamW, WeightDecay: true, Implementation: Fused}},
	{"adamw-single", Config{Algorithm: AdamW, WeightDecay: true, Implementation: SingleTensor}},
	{"amsgrad", Config{Algorithm: AdamW, WeightDecay: true, AMSGrad: true}},
	{"adam", Config{Algorithm: Adam}},
	{"adam-wd", Config{Algorithm: Adam, WeightDecay: true}},
	{"sgd", Config{Algorithm: SGD}},
	{"sgd-momentum", Config{Algorithm: SGD, Momentum: true}},
	{"sgd-momentum-wd", Config{Algorithm: SGD, Momentum: true, WeightDecay: true}},
	{"rmsprop", Config{Algorithm: RMSprop}},
	{"adagrad", Config{Algorithm: Adagrad}},
	{"adadelta", Config{Algorithm: Adadelta}},
	// unlike other optimizers, Adafactor is not foreach by default
	{"adafactor", Config{Algorithm: Adafactor, Implementation: SingleTensor}},
	{"adafactor-foreach", Config{Algorithm: Adafactor}},
	{"adamax", Config{Algorithm: Adamax}},
	{"nadam", Config{Algorithm: NAdam}},
	{"muon", Config{Algorithm: Muon, Implementation: SingleTensor}}, // of the matrices; others keep their gradients
	{"adamw8bit", Config{Algorithm: AdamW8bit, Implementation: SingleTensor}},
	{"paged-adamw8bit", Config{Algorithm: AdamW8bit, Implementation: SingleTensor, Paged: true}},
	{"paged-adamw32bit", Config{Algorithm: AdamW32bit, Implementation: SingleTensor, Paged: true}},
	{"lion8bit", Config{Algorithm: Lion8bit, Implementation: SingleTensor}},
	{"lion32bit", Config{Algorithm: Lion32bit, Implementation: SingleTensor}},
	{"paged-lion8bit", Config{Algorithm: Lion8bit, Implementation: SingleTensor, Paged: true}},
	{"paged-lion32bit", Config{Algorithm: Lion32bit, Implementation: SingleTensor, Paged: true}},
	{"galore-adamw", Config{Algorithm: GaLoreAdamW, Implementation: SingleTensor, Rank: usualRank}},
	{"galore-adamw8bit", Config{Algorithm: GaLoreAdamW8bit, Implementation: SingleTensor, Rank: usualRank}},
	{"galore-adafactor", Config{Algorithm: GaLoreAdafactor, Implementation: SingleTensor, Rank: usualRank}},
	{"adafactor-transformers", Config{Algorithm: AdafactorHF, Implementation: SingleTensor}},
	// torchao's optimizer; temporaries of its compiled kernel are not known
	{"adamw8bit-torchao", Config{Algorithm: AdamW8bitAO, Implementation: SingleTensor}},
	{"adamw-fp8", Config{Algorithm: AdamWFp8, Implementation: SingleTensor}},
	{"adamw4bit", Config{Algorithm: AdamW4bit, Implementation: SingleTensor}},
	// no optimizer: forward and backward only, as benchmarks time them
	{"none", Config{Algorithm: None, Implementation: SingleTensor}},
}

// usualRank is the rank of GaLore in transformers.
const usualRank = 128

// Named returns the configuration with a name. Names of optimizers that project gradients take options after a colon:
// rank=N, and target= with parts of layers' paths, joined by plus signs.
func Named(text string) (Config, error) {
	name, list, more := strings.Cut(text, ":")
	at := slices.IndexFunc(namedConfigs, func(n namedConfig) bool { return n.name == name })
	if at < 0 {
		return Config{}, fmt.Errorf("there is no optimizer %q; use one of %s, or run your own script with \"vprof "+
			"run -- python train.py\", which supports any", name, strings.Join(Names(), ", "))
	}
	c := namedConfigs[at].config
	if !more {
		return c, nil
	}
	if !c.LowRank() {
		return c, fmt.Errorf("the optimizer %s has no options; leave out %q", name, list)
	}
	return c, projection.Read(&c, name, list)
}

// projection holds the options of optimizers that project gradients.
var projection = options.Table[Config]{
	options.NewCount("rank", 1, math.MaxInt32, func(c *Config) *int64 { return &c.Rank }),
	{Key: "target", Read: func(c *Config, text string) error {
		if c.Target = text; text == "" {
			return errors.New("target has no names of layers; write target=q_proj+v_proj")
		}
		return nil
	}},
}

// Names returns the names of all configurations.
func Names() []string { return lists.Map(namedConfigs, func(n namedConfig) string { return n.name }) }
