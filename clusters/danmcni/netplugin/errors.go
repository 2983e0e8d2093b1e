package netplugin

import (
	"context"
	"errors"
	"net/url"

	"github.com/containernetworking/cni/pkg/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Error codes of this plugin, beyond those of the CNI specification.
const (
	// codeNotReserved: DANM could not give the pod what it asks for.
	codeNotReserved uint = 100
	// codeNotAsAdded: CHECK found something else than ADD left.
	codeNotAsAdded uint = 101
	// codeNoPlugin: a plugin that we delegate to is not in CNI_PATH.
	codeNoPlugin uint = 102
	// codeAttached: ADD for an attachment that exists.
	codeAttached uint = 103
)

// coded gives an error a CNI code. If it came with one, that of the plugin in
// which it came up tells the runtime more, but for a plugin that was killed
// when our time was up.
func coded(code uint, doing string, err error) *types.Error {
	var inner *types.Error
	if errors.As(err, &inner) && inner.Code != types.ErrUnknown && code != types.ErrTryAgainLater {
		code = inner.Code
	}
	return types.NewError(code, doing, err.Error())
}

// codeOf is the code of an error of the API, or otherwise if the API answered
// and meant it.
func codeOf(err error, otherwise uint) uint {
	if isPassing(err) {
		return types.ErrTryAgainLater
	}
	return otherwise
}

// isPassing tells whether the same command may succeed a moment later.
func isPassing(err error) bool {
	// Every request that got no answer comes as such; net.Error would match
	// the errors of files as well.
	var transport *url.Error
	return errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
