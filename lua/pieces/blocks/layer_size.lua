local code = older_headers[j]:byte(8)
-- paste: block_size
