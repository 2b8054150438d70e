//go:build !js

package stack

import "embed"

// cudnnFiles are the decision rules of convolutions, a folder for each version of cuDNN; command fit of package cudnn
// writes them. A folder has what differs from the versions before: whole rules, or corrections. Their trees are
// compressed, and read no further than a convolution needs.
//
//go:embed cudnn
var cudnnFiles embed.FS
