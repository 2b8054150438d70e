package optim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// named are the configurations a case may ask for.
var named = map[string]Config{
	"adadelta":        {Algorithm: Adadelta},
	"adafactor":       {Algorithm: Adafactor},
	"adagrad":         {Algorithm: Adagrad},
	"adam":            {Algorithm: Adam},
	"adam-wd":         {Algorithm: Adam, WeightDecay: true},
	"adamw":           {Algorithm: AdamW, WeightDecay: true},
	"adamw-fused":     {Algorithm: AdamW, WeightDecay: true, Implementation: Fused},
	"adamw-single":    {Algorithm: AdamW, WeightDecay: true, Implementation: SingleTensor},
	"adamax":          {Algorithm: Adamax},
	"amsgrad":         {Algorithm: AdamW, WeightDecay: true, AMSGrad: true},
	"nadam":           {Algorithm: NAdam},
	"radam":           {Algorithm: RAdam},
	"rmsprop":         {Algorithm: RMSprop},
	"rprop":           {Algorithm: Rprop},
	"sgd":             {Algorithm: SGD},
	"sgd-momentum":    {Algorithm: SGD, Momentum: true},
	"sgd-momentum-wd": {Algorithm: SGD, Momentum: true, WeightDecay: true},
}

// Named is the configuration of that name.
func Named(name string) (Config, error) {
	c, ok := named[name]
	if !ok {
		return Config{}, fmt.Errorf("unknown optimizer %q; take one of %s", name, strings.Join(Names(), ", "))
	}
	return c, nil
}

// Names are the names of all configurations, sorted.
func Names() []string { return slices.Sorted(maps.Keys(named)) }
