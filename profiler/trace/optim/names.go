package optim

import (
	"fmt"
	"strings"
)

// named are the configurations a case may ask for, the usual ones first.
var named = []struct {
	name   string
	config Config
}{
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
	{"adafactor", Config{Algorithm: Adafactor, Implementation: SingleTensor}}, // unlike the others, not foreach unless told
	{"adafactor-foreach", Config{Algorithm: Adafactor}},
	{"adamax", Config{Algorithm: Adamax}},
	{"nadam", Config{Algorithm: NAdam}},
	{"radam", Config{Algorithm: RAdam}},
	{"rprop", Config{Algorithm: Rprop}},
	{"muon", Config{Algorithm: Muon, Implementation: SingleTensor}}, // of the matrices; others keep their gradients
	{"adamw8bit", Config{Algorithm: AdamW8bit, Implementation: SingleTensor}},
	{"paged-adamw8bit", Config{Algorithm: AdamW8bit, Implementation: SingleTensor, Paged: true}},
	{"paged-adamw32bit", Config{Algorithm: AdamW32bit, Implementation: SingleTensor, Paged: true}},
	{"lion8bit", Config{Algorithm: Lion8bit, Implementation: SingleTensor}},
	{"lion32bit", Config{Algorithm: Lion32bit, Implementation: SingleTensor}},
	{"paged-lion8bit", Config{Algorithm: Lion8bit, Implementation: SingleTensor, Paged: true}},
	{"paged-lion32bit", Config{Algorithm: Lion32bit, Implementation: SingleTensor, Paged: true}},
	{"ademamix8bit", Config{Algorithm: AdEMAMix8bit, Implementation: SingleTensor}},
	{"ademamix32bit", Config{Algorithm: AdEMAMix32bit, Implementation: SingleTensor}},
	{"paged-ademamix8bit", Config{Algorithm: AdEMAMix8bit, Implementation: SingleTensor, Paged: true}},
	{"paged-ademamix32bit", Config{Algorithm: AdEMAMix32bit, Implementation: SingleTensor, Paged: true}},
	{"schedule-free-adamw", Config{Algorithm: AdamWScheduleFree, WeightDecay: true}},
	{"came", Config{Algorithm: CAME, WeightDecay: true, Implementation: SingleTensor}},
	{"adam-mini", Config{Algorithm: AdamMini, Implementation: SingleTensor}},
	{"adamw4bit", Config{Algorithm: AdamW4bit, Implementation: SingleTensor}}, // of torchao; temporaries of its compiled kernel are not known
}

// Named is the configuration of that name.
func Named(name string) (Config, error) {
	for _, n := range named {
		if n.name == name {
			return n.config, nil
		}
	}
	return Config{}, fmt.Errorf("unknown optimizer %q; take one of %s", name, strings.Join(Names(), ", "))
}

// Names are the names of all configurations.
func Names() []string {
	out := make([]string, len(named))
	for i, n := range named {
		out[i] = n.name
	}
	return out
}
