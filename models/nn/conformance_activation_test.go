package nn_test

import "github.com/vprof/vprof/profiler/aten/opvectors"

func activationOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"relu":        unary((*tensor).ReLU),
		"relu_":       unary((*tensor).ReLUInPlace),
		"relu6":       unary((*tensor).ReLU6),
		"relu6_":      unary((*tensor).ReLU6InPlace),
		"gelu":        unary((*tensor).GELU),
		"gelu_tanh":   unary((*tensor).GELU),
		"sigmoid":     unary((*tensor).Sigmoid),
		"sigmoid_":    unary((*tensor).SigmoidInPlace),
		"tanh":        unary((*tensor).Tanh),
		"tanh_":       unary((*tensor).TanhInPlace),
		"leaky_relu":  unary((*tensor).LeakyReLU),
		"leaky_relu_": unary((*tensor).LeakyReLUInPlace),
		"elu":         unary((*tensor).ELU),
		"elu_":        unary((*tensor).ELUInPlace),
		"selu":        unary((*tensor).SELU),
		"silu":        unary((*tensor).SiLU),
		"silu_":       unary((*tensor).SiLUInPlace),
		"mish":        unary((*tensor).Mish),
		"mish_":       unary((*tensor).MishInPlace),
		"hardsigmoid": unary((*tensor).Hardsigmoid),
		"hardswish":   unary((*tensor).Hardswish),
		"hardswish_":  unary((*tensor).HardswishInPlace),
		"hardtanh":    unary((*tensor).Hardtanh),
		"softplus":    unary((*tensor).Softplus),
		"softsign":    unary((*tensor).Softsign),
		"tanhshrink":  unary((*tensor).Tanhshrink),
		"glu":         unary(func(x *tensor) *tensor { return x.GLU(1) }),
		"glu_last":    unary(func(x *tensor) *tensor { return x.GLU(-1) }),
		"prelu":       one(preluCall),
		"prelu1":      one(preluCall),
		"logsigmoid":  unary((*tensor).LogSigmoid),
	}
}

func preluCall(_ *vector, in []*tensor, p params) *tensor { return in[0].PReLU(p["weight"]) }
