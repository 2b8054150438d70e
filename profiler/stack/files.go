//go:build !js

package stack

import "embed"

// cudnnFiles has cuDNN's decision rules for convolutions, in a folder for each version; command fit of package cudnn
// writes them. A folder has the rules that differ from earlier versions: whole rules, or corrections. Their trees are
// compressed, and read no further than a convolution needs.
//
//go:embed cudnn
var cudnnFiles embed.FS
