package nn_test

import "github.com/vprof/vprof/internal/opvectors"

func signalOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{}
}
