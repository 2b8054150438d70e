package nn_test

import "github.com/vprof/vprof/internal/opvectors"

func poolOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{}
}
